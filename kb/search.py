"""Pitfalls by words, and by a pasted error line through the catalog's own patterns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from kb.catalog import Catalog, Pitfall, Signature

#: A pasted message is tried up to these bounds; whole logs belong on the triage page.
MAX_LINES = 40
MAX_LINE_CHARACTERS = 800
MAX_WORDS = 12
_STRENGTH = {"conclusive": 3, "strong": 2, "hint": 1}
_WORD = re.compile(r"[\w./-]{2,}")
_QUOTED = re.compile(r"[\\^$.|?*+()\[\]{}]")


@dataclass(frozen=True, slots=True)
class Found:
    """A pitfall that fits the query; `line` is the pasted line that one of its patterns matched."""

    pitfall: Pitfall
    line: str = ""


def search(catalog: Catalog, query: str) -> list[Found]:
    """Pitfalls that fit, best first: those whose patterns match a line, then those with the words.

    Empty for an empty query.
    """
    lines = [line.strip()[:MAX_LINE_CHARACTERS] for line in query.splitlines()[:MAX_LINES]]
    lines = [line for line in lines if line]
    if not lines:
        return []
    by_pattern = sorted(_by_patterns(catalog, lines), key=lambda item: -item[0])
    found = [Found(pitfall, line) for _, pitfall, line in by_pattern]
    known = {item.pitfall.slug for item in found}
    found += [
        Found(pitfall)
        for pitfall in _by_words(catalog, " ".join(lines))
        if pitfall.slug not in known
    ]
    return found


def matching_lines(pitfall: Pitfall, lines: Sequence[str]) -> set[int]:
    """Indexes of the lines that a pattern of the entry's signatures matches."""
    patterns = [
        _compiled(pattern) for signature in pitfall.signatures for pattern in signature.patterns
    ]
    return {
        index
        for index, line in enumerate(lines)
        if any(pattern.search(line[:MAX_LINE_CHARACTERS]) for pattern in patterns)
    }


def _by_patterns(catalog: Catalog, lines: Sequence[str]) -> Iterable[tuple[int, Pitfall, str]]:
    """(weight, pitfall, line) of each entry one of whose signatures the lines satisfy."""
    for pitfall in catalog.active:
        best, winner = 0, ""
        for signature in pitfall.signatures:
            line = _line_of(signature, lines)
            # A pasted line is all there is, so facts that need a whole log cannot be asked for.
            weight = _STRENGTH[signature.strength] * 4 - (2 if signature.facts else 0)
            if pitfall.role == "root":
                weight += 1
            if line is not None and weight > best:
                best, winner = weight, line
        if best:
            yield best, pitfall, winner


def _line_of(signature: Signature, lines: Sequence[str]) -> str | None:
    """The line that decides the signature; None if the lines do not satisfy it."""
    first = None
    for pattern in signature.all:
        line = _first_match(pattern, lines)
        if line is None:
            return None
        first = first or line
    if signature.any:
        hits = (_first_match(pattern, lines) for pattern in signature.any)
        line = next((hit for hit in hits if hit is not None), None)
        if line is None:
            return None
        first = first or line
    if any(_first_match(pattern, lines) is not None for pattern in signature.none):
        return None
    return first


def _first_match(pattern: str, lines: Sequence[str]) -> str | None:
    compiled = _compiled(pattern)
    return next((line for line in lines if compiled.search(line)), None)


@lru_cache(maxsize=8192)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _by_words(catalog: Catalog, query: str) -> list[Pitfall]:
    """Entries that hold every word of the query, those with the words in their title first."""
    words = [word.lower() for word in _WORD.findall(query)][:MAX_WORDS]
    if not words:
        return []
    scored = []
    for pitfall in catalog.active:
        text = _searchable(pitfall)
        if all(word in text for word in words):
            title = f"{pitfall.title} {pitfall.slug}".lower()
            scored.append((-sum(word in title for word in words), pitfall))
    return [pitfall for _, pitfall in sorted(scored, key=lambda item: item[0])]


@lru_cache(maxsize=2048)
def _searchable(pitfall: Pitfall) -> str:
    patterns = " ".join(
        _QUOTED.sub(" ", pattern)
        for signature in pitfall.signatures
        for pattern in signature.patterns
    )
    fixes = " ".join(fix.title for fix in pitfall.fixes)
    parts = (
        pitfall.slug, pitfall.title, pitfall.summary, pitfall.group, fixes, patterns, pitfall.guide,
    )  # fmt: skip
    return " ".join(parts).lower()
