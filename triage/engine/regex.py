"""Regexes that are compiled when they are first used: most texts need few of the engine's."""

from __future__ import annotations

import re
from typing import Any, cast, overload


class _Regex:
    """Stands in for a compiled pattern; the first method asked for compiles it."""

    def __init__(self, pattern: Any, flags: int) -> None:
        self._source = pattern, flags

    def __getattr__(self, name: str) -> Any:
        value = getattr(re.compile(*self._source), name)
        setattr(self, name, value)
        return value


@overload
def regex(pattern: str, flags: int = 0) -> re.Pattern[str]: ...


@overload
def regex(pattern: bytes, flags: int = 0) -> re.Pattern[bytes]: ...


def regex(pattern: Any, flags: int = 0) -> Any:
    """What re.compile returns, but compiled on first use; re.error comes then too."""
    return cast("re.Pattern[Any]", _Regex(pattern, flags))
