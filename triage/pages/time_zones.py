"""Times as the reader's clock shows them: the zone of the profile, of the browser, or UTC."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from triage.models import Profile

#: Set by app.js to the name of the browser's zone.
COOKIE = "time_zone"


class TimeZoneMiddleware:
    """Activates the reader's zone for the length of a request."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """The answer, its times in the reader's zone."""
        with timezone.override(zone_of(request)):
            return self.get_response(request)


def zone_of(request: HttpRequest) -> ZoneInfo:
    """The zone that the reader chose, else the browser's, else UTC; unknown names count as none."""
    for name in (chosen_zone(request), request.COOKIES.get(COOKIE, "")):
        if name in _known_zones():
            return ZoneInfo(name)
    return ZoneInfo("UTC")


def chosen_zone(request: HttpRequest) -> str:
    """The zone in the profile of who is signed in; empty where nobody chose one."""
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return ""
    profile: Profile | None = getattr(user, "profile", None)
    return profile.time_zone if profile is not None else ""


@cache
def _known_zones() -> frozenset[str]:
    # A name from a cookie must never become a path: ZoneInfo alone would look for a file.
    return frozenset(available_timezones())
