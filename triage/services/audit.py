"""The one writer of AuditEntry: sign-ins, and changes of who may do what."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.dispatch import receiver
from django.http import HttpRequest
from django.utils import timezone

from triage.models import AuditEntry

SIGNED_IN = "signed_in"
SIGNED_OUT = "signed_out"
SIGN_IN_FAILED = "sign_in_failed"
PERSON_ADDED = "person_added"
ROLE_CHANGED = "role_changed"
PERSON_SHUT_OUT = "person_shut_out"
PERSON_LET_IN = "person_let_in"
LINK_MADE = "link_made"
PASSWORD_CHANGED = "password_changed"  # noqa: S105 (the name of an event)
TEAM_MADE = "team_made"
TEAM_RENAMED = "team_renamed"
TEAM_REMOVED = "team_removed"
JOINED_TEAM = "joined_team"
LEFT_TEAM = "left_team"
TOKEN_MADE = "token_made"  # noqa: S105
TOKEN_REVOKED = "token_revoked"  # noqa: S105

_MAX_NAME = 150


def write(
    kind: str,
    *,
    who: User | None = None,
    about: User | None = None,
    data: Mapping[str, Any] | None = None,
    request: HttpRequest | None = None,
) -> AuditEntry:
    """Adds a row, now. Call it inside the transaction that does what the row tells."""
    names = {key: p.get_username() for key, p in (("who", who), ("about", about)) if p}
    return AuditEntry.objects.create(
        kind=kind,
        who=who,
        about=about,
        at=timezone.now(),
        address=_address(request),
        data={**names, **(data or {})},
    )


def _address(request: HttpRequest | None) -> str | None:
    """The address of the other end: behind a proxy that of the proxy, which alone is certain."""
    if request is None:
        return None
    try:
        return str(ipaddress.ip_address(request.META.get("REMOTE_ADDR", "")))
    except ValueError:
        return None


@receiver(user_logged_in)
def _signed_in(sender: Any, request: HttpRequest | None, user: User, **_: Any) -> None:
    backend = getattr(user, "backend", "")
    write(SIGNED_IN, who=user, request=request, data={"by": _way(request, backend)})


@receiver(user_logged_out)
def _signed_out(sender: Any, request: HttpRequest | None, user: User | None, **_: Any) -> None:
    if user is not None:
        write(SIGNED_OUT, who=user, request=request)


@receiver(user_login_failed)
def _sign_in_failed(
    sender: Any, credentials: Mapping[str, Any], request: HttpRequest | None = None, **_: Any
) -> None:
    # The name that was typed: a password typed in its place must not be kept whole.
    typed = str(credentials.get("username", ""))[:_MAX_NAME]
    is_known = User.objects.filter(username=typed).exists()
    write(SIGN_IN_FAILED, request=request, data={"name": typed if is_known else ""})


def _way(request: HttpRequest | None, backend: str) -> str:
    if "allauth" in backend:
        return "single sign-on"
    if request is not None and request.path.startswith("/login/once/"):
        return "one-time link"
    return "password"
