"""What every page's frame shows: the reader's choice of colours."""

from __future__ import annotations

from django.http import HttpRequest

THEMES = ("", "dark", "light")


def theme_of(request: HttpRequest) -> str:
    """The theme in the reader's cookie; empty (as the system) for anything unknown."""
    theme = request.COOKIES.get("theme", "")
    return theme if theme in THEMES else ""


def appearance(request: HttpRequest) -> dict[str, str]:
    """Context processor: the theme, and the one that the switch turns to."""
    theme = theme_of(request)
    return {"theme": theme, "next_theme": THEMES[(THEMES.index(theme) + 1) % len(THEMES)]}
