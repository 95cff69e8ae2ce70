"""What a page asks of who opens it: a sign-in, and a right."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse

from triage.pages.requests import PageRequest
from triage.services import people
from triage.services.people import Right


def requires(right: Right) -> Callable:
    """A decorator: strangers are led to the sign-in page, people without the right get a 403."""

    def decorate(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
        @login_required
        @wraps(view)
        def checked(request: PageRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            if not people.may(request.user, right):
                raise PermissionDenied(right.name)
            return view(request, *args, **kwargs)

        return checked

    return decorate
