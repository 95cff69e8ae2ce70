"""Foreign values made fit for a column: what SQLite keeps, PostgreSQL must be able to keep too."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def clean_name(name: str, length: int = 200) -> str:
    """A name as a column can hold it: one line, no control characters, cut to `length`."""
    printable = "".join(c if c.isprintable() else " " for c in name)
    return " ".join(printable.split())[:length]


def clean_json(value: Any) -> Any:
    """The value without what JSON or PostgreSQL refuses: NUL, lone surrogates, NaN, infinity."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, str):
        return _UNSTORABLE.sub("\ufffd", value)
    if isinstance(value, Mapping):
        return {clean_json(str(key)): clean_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean_json(item) for item in value]
    return value
