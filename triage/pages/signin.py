"""/login/once/<token>: the one-time link that `manage.py up` prints."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth import login
from django.http import HttpRequest, HttpResponseRedirect
from django.shortcuts import redirect
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from triage.services.sign_in import redeem_token


# HEAD is refused: a program that looks whether the link is alive would spend it.
@never_cache
@require_GET
def sign_in_once(request: HttpRequest, token: str) -> HttpResponseRedirect:
    """Signs in and leads to the first page, or to the sign-in form with the reason."""
    user = redeem_token(token)
    if user is None:
        if request.user.is_authenticated:
            return redirect("/")
        messages.error(
            request,
            "This sign-in link was used already or has expired. Sign in with your password, or "
            "print a new link with: python manage.py prepare",
        )
        return redirect("/login/")
    login(request, user, backend="django.contrib.auth.backends.ModelBackend")
    return redirect("/")
