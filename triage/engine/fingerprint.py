"""The same failure, the same key, whatever its rank, host, path, address, time or numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from triage.engine.regex import regex

_NOISE = (
    (regex(r"0x[0-9a-fA-F]+"), "ADDRESS"),
    (regex(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b"), "HOST"),
    (regex(r"(?:[A-Za-z]:)?(?:[\\/][\w.\-+@~]+){2,}[\\/]?"), "PATH"),
    (regex(r"\b[0-9a-f]{8,}\b"), "ID"),
    (regex(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?"), "N"),
    (regex(r"\s+"), " "),
)


def template(text: str) -> str:
    """The text with everything replaced that differs between two runs of the same failure."""
    for pattern, word in _NOISE:
        text = pattern.sub(word, text)
    return text.strip()[:400]


def fingerprint(slugs: Iterable[str], texts: Iterable[str]) -> str:
    """16 hexadecimal digits over the slugs in order and the texts' templates, each once."""
    parts = [*slugs, "", *sorted({template(text) for text in texts})]
    return hashlib.sha256("\n".join(parts).encode("utf-8", "replace")).hexdigest()[:16]
