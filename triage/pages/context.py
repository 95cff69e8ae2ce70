"""What every page's frame shows: the reader's choice of colours, and of a time zone."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth.models import User
from django.http import HttpRequest

from triage.pages.time_zones import chosen_zone
from triage.services import people
from triage.services.people import Right

THEMES = ("", "dark", "light")


def theme_of(request: HttpRequest) -> str:
    """The theme in the reader's cookie; empty (as the system) for anything unknown."""
    theme = request.COOKIES.get("theme", "")
    return theme if theme in THEMES else ""


def rights(request: HttpRequest) -> dict[str, dict[str, bool]]:
    """Context processor: `rights.CURATE` and the like, whether the reader has them."""
    user = getattr(request, "user", None)
    if not isinstance(user, User):
        return {"rights": {}}
    return {"rights": {right.name: people.may(user, right) for right in Right}}


def single_sign_on(request: HttpRequest) -> dict[str, str]:
    """Context processor: the name of the provider, empty where none is configured."""
    return {"sso_name": settings.PITSTOP_OIDC_NAME if settings.HAS_SINGLE_SIGN_ON else ""}


def appearance(request: HttpRequest) -> dict[str, str]:
    """Context processor: the theme, the one that the switch turns to, and the chosen time zone."""
    theme = theme_of(request)
    return {
        "theme": theme,
        "next_theme": THEMES[(THEMES.index(theme) + 1) % len(THEMES)],
        "time_zone": chosen_zone(request),
    }
