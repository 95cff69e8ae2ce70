"""Signing in: the one-time link that `manage.py up` prints, and the rest after wrong passwords."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth import login
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from triage.pages.errors import error_page
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


def locked_out(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
    """429 for a name and address with too many wrong passwords; django-axes calls it."""
    response = error_page(
        request,
        429,
        "Too many wrong passwords",
        "This name rests for five minutes at this address.",
        "An administrator can print a sign-in link with: python manage.py prepare",
    )
    response["Retry-After"] = "300"
    return response
