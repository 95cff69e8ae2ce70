"""What every page's frame shows: the reader's choice of colours, and of a time zone."""

from __future__ import annotations

from django.http import HttpRequest

from triage.pages.time_zones import chosen_zone

THEMES = ("", "dark", "light")


def theme_of(request: HttpRequest) -> str:
    """The theme in the reader's cookie; empty (as the system) for anything unknown."""
    theme = request.COOKIES.get("theme", "")
    return theme if theme in THEMES else ""


def appearance(request: HttpRequest) -> dict[str, str]:
    """Context processor: the theme, the one that the switch turns to, and the chosen time zone."""
    theme = theme_of(request)
    return {
        "theme": theme,
        "next_theme": THEMES[(THEMES.index(theme) + 1) % len(THEMES)],
        "time_zone": chosen_zone(request),
    }
