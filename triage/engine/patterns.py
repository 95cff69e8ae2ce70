"""Catalog patterns → what every match of them must contain, and the bounded regexes to confirm."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache, cached_property
from itertools import islice
from pathlib import Path
from re import _constants as sre  # type: ignore[attr-defined]
from typing import Any, Protocol

from kb.catalog import syntax
from triage.engine.regex import compile_now, is_quick

try:
    import re2
except ImportError:  # no wheel for this platform: `re` confirms, on bounded lines only
    re2 = None

MIN_LITERAL_BYTES = 4
# What is shorter stands in ordinary lines everywhere.
TELLING_BYTES = 6
_MAX_ALTERNATIVES = 64
_MAX_REPEATS = 4
_MAX_CLASS = 10
# `re` searches a line of this length in a microsecond or two, RE2's Python side takes 30.
_SHORT_CHARS = 400
_TRIES_BEFORE_RE = 24
# Beyond this, only what stands around a pattern's literals is searched.
_LONG_CHARS = 4_000
_AROUND_CHARS = 2_000
_MAX_PLACES = 16
# A text that healthy runs print must be longer by so much to be chosen all the same.
_COMMON_COSTS = 40


class Found(Protocol):
    """The part of re.Match that the engine uses; RE2's match has it too."""

    def start(self) -> int: ...

    def end(self) -> int: ...

    def groupdict(self) -> dict[str, str | None]: ...


class Pattern:
    """One pattern of the catalog, compiled when it is first needed.

    A `reviewed` one may be tried by `re` on short lines; all others are RE2's alone, whose time is
    linear. Raises syntax.PatternError for a text that no entry may hold.
    """

    __slots__ = ("__dict__", "_quick", "literals", "reviewed", "text", "tries")

    # The regex for short lines, from when on it is worth to compile it.
    _quick: re.Pattern[str] | None

    literals: tuple[Literal, ...] | None

    def __init__(self, text: str, *, reviewed: bool = False) -> None:
        self.text = text
        self.reviewed = reviewed
        self.tries = 0
        self._quick = None
        self.literals = required_literals(syntax.parse(text))

    @classmethod
    def analysed(
        cls, text: str, literals: tuple[Literal, ...] | None, *, reviewed: bool = False
    ) -> Pattern:
        """The pattern of a text that was parsed before, with the literals found then."""
        pattern = cls.__new__(cls)
        pattern.text = text
        pattern.reviewed = reviewed
        pattern.tries = 0
        pattern._quick = None
        pattern.literals = literals
        return pattern

    @cached_property
    def is_telling(self) -> bool:
        """Whether its literals are worth a look wherever they stand: long, and not in every log."""
        return bool(self.literals) and not any(
            len(text) < TELLING_BYTES or is_common(text, ignore_case=ignore_case)
            for text, ignore_case in self.literals or ()
        )

    @cached_property
    def is_anchored(self) -> bool:
        """Whether a prefix before the message can keep the pattern from matching."""
        return any(found[1] is None for found in _ANCHOR.finditer(self.text))

    @cached_property
    def _regex(self) -> Any:
        return _compile(self.text)

    @cached_property
    def _quick_regex(self) -> Any:
        return compile_now(self.text, re.ASCII)

    @cached_property
    def _loose_regex(self) -> Any:
        return _compile(_loosened(self.text)) if self.is_anchored else self._regex

    @cached_property
    def _quick_loose_regex(self) -> Any:
        return compile_now(_loosened(self.text), re.ASCII)

    def may_occur_in(self, line: str) -> bool:
        """Whether the pattern can match what is left of this line without its prefixes.

        An escaped message is not looked into: the answer is then always yes.
        """
        if self._is_worth_re(line):
            regex = self._quick_loose_regex if self.is_anchored else self._quick_regex
            return regex.search(line) is not None or "\\n" in line
        if len(line) > _LONG_CHARS:
            return self.is_anchored or self.search(line) is not None or "\\n" in line
        return self._loose_regex.search(line) is not None or "\\n" in line

    def search(self, text: str) -> Found | None:
        """The first match in a line, or None; in a very long one, around its literals only."""
        found: Found | None
        if self._quick is not None and len(text) <= _SHORT_CHARS:
            found = self._quick.search(text)
            return found
        if self._is_worth_re(text):
            self._quick = self._quick_regex
            found = self._quick.search(text)
            return found
        if len(text) <= _LONG_CHARS:
            found = self._regex.search(text)
            return found
        for start, end in self._places(text):
            if (found := self._regex.search(text[start:end])) is not None:
                return _Moved(found, start)
        return None

    def _is_worth_re(self, text: str) -> bool:
        """Whether `re` answers sooner; to compile for it takes as long as RE2 needs for many."""
        if not self.reviewed or len(text) > _SHORT_CHARS:
            return False
        self.tries += 1
        return self.tries > _TRIES_BEFORE_RE or self._is_kept

    @cached_property
    def _is_kept(self) -> bool:
        """Whether a former process compiled it for `re`."""
        is_kept = is_quick(self.text, re.ASCII)
        return (not self.is_anchored or is_quick(_loosened(self.text), re.ASCII)) and is_kept

    def _places(self, text: str) -> list[tuple[int, int]]:
        """The parts of a long line that can hold a match, in order; some overlap."""
        starts: list[int] = []
        for raw, ignore_case in self.literals or ():
            literal = raw.decode("utf-8", "replace")
            flags = re.IGNORECASE if ignore_case else 0
            places = islice(re.finditer(re.escape(literal), text, flags), _MAX_PLACES)
            starts.extend(max(found.start() - _AROUND_CHARS, 0) for found in places)
        if not self.literals:
            return [(0, _LONG_CHARS), (len(text) - _LONG_CHARS, len(text))]
        return [(start, start + 2 * _AROUND_CHARS) for start in sorted(starts)[:_MAX_PLACES]]


class _Moved:
    """A match within a part of a line, in the offsets of the line."""

    def __init__(self, found: Found, by: int) -> None:
        self._found = found
        self._by = by

    def start(self) -> int:
        return self._found.start() + self._by

    def end(self) -> int:
        return self._found.end() + self._by

    def groupdict(self) -> dict[str, str | None]:
        return self._found.groupdict()


def _compile(text: str | bytes) -> Any:
    """The regex in RE2, or in `re` where RE2 is missing or refuses it: its memory is bounded."""
    if re2 is not None:
        try:
            return re2.compile(text, _re2_options())
        except re2.error:
            return re.compile(text)
    return re.compile(text)


def _re2_options() -> Any:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = 8 << 20
    return options


class Literal(tuple[bytes, bool]):
    """Bytes that a match must contain, and whether their case matters not."""

    __slots__ = ()


def required_literals(tree: Any) -> tuple[Literal, ...] | None:
    """Literals of which every match of the parsed pattern contains at least one, longest choice.

    None where there is no such set with members of MIN_LITERAL_BYTES or more: the pattern itself
    must then go to the multi-pattern matcher.
    """
    ignore_case = bool(tree.state.flags & re.IGNORECASE)
    best = _best_of(list(tree))
    if best is None or min(len(text.encode()) for text in best) < MIN_LITERAL_BYTES:
        return None
    return tuple(Literal((text.encode(), ignore_case)) for text in sorted(best))


def _best_of(items: Sequence[tuple[Any, Any]]) -> frozenset[str] | None:
    """Of a sequence, the set of texts whose shortest member is longest."""
    candidates: list[frozenset[str]] = []
    run = frozenset(("",))
    for operator, argument in items:
        exact = _exactly(operator, argument)
        if exact is not None and len(run) * len(exact) <= _MAX_ALTERNATIVES:
            run = frozenset(head + tail for head in run for tail in exact)
            continue
        candidates.append(run)
        run = exact if exact is not None else frozenset(("",))
        if exact is None and (inner := _inside(operator, argument)) is not None:
            candidates.append(inner)
    candidates.append(run)
    usable = [c for c in candidates if "" not in c]
    if not usable:
        return None
    return max(usable, key=_worth)


def _worth(texts: frozenset[str]) -> float:
    """Long, few and rare: each further text costs the multi-pattern pass a little, a common one
    a look at every line that holds it.
    """
    shortest = min(len(text.encode()) for text in texts)
    costs = _COMMON_COSTS if any(is_common(text.encode()) for text in texts) else 0
    return shortest - 0.1 * len(texts) - costs


@cache
def healthy_text() -> bytes:
    """What healthy runs print."""
    return (Path(__file__).parent / "healthy.txt").read_bytes()


@cache
def _healthy_in_small_letters() -> bytes:
    return healthy_text().lower()


def is_common(text: bytes, *, ignore_case: bool = False) -> bool:
    """Whether healthy runs print this."""
    if ignore_case:
        return text.lower() in _healthy_in_small_letters()
    return text in healthy_text()


def _exactly(operator: Any, argument: Any) -> frozenset[str] | None:
    """All texts that this item can match, if they are few; an anchor matches the empty one."""
    if operator is sre.LITERAL:
        return frozenset((chr(argument),))
    if operator is sre.AT:
        return frozenset(("",))
    if operator is sre.IN:
        return _exact_class(argument)
    if operator is sre.SUBPATTERN:
        return _exact_sequence(argument[3])
    if operator is sre.BRANCH:
        parts: set[str] = set()
        for branch in argument[1]:
            exact = _exact_sequence(branch)
            if exact is None:
                return None
            parts |= exact
        return frozenset(parts) if len(parts) <= _MAX_ALTERNATIVES else None
    if operator in (sre.MAX_REPEAT, sre.MIN_REPEAT) and argument[1] <= _MAX_REPEATS:
        exact = _exact_sequence(argument[2])
        return None if exact is None else _repeated(exact, *argument[:2])
    return None


def _exact_class(members: Sequence[tuple[Any, Any]]) -> frozenset[str] | None:
    """The characters of a class, if they are few and named."""
    found: set[str] = set()
    for operator, argument in members:
        if operator is sre.LITERAL:
            found.add(chr(argument))
        elif operator is sre.RANGE and argument[1] - argument[0] < _MAX_CLASS:
            found.update(map(chr, range(argument[0], argument[1] + 1)))
        else:
            return None
    return frozenset(found) if len(found) <= _MAX_CLASS else None


def _repeated(texts: frozenset[str], least: int, most: int) -> frozenset[str] | None:
    """All texts of so many members one after the other, if they are few."""
    found: set[str] = set()
    run = frozenset(("",))
    for count in range(most + 1):
        if count >= least:
            found |= run
        if len(run) * len(texts) + len(found) > _MAX_ALTERNATIVES:
            return None
        run = frozenset(head + tail for head in run for tail in texts)
    return frozenset(found)


def _exact_sequence(items: Iterable[tuple[Any, Any]]) -> frozenset[str] | None:
    run = frozenset(("",))
    for operator, argument in items:
        exact = _exactly(operator, argument)
        if exact is None or len(run) * len(exact) > _MAX_ALTERNATIVES:
            return None
        run = frozenset(head + tail for head in run for tail in exact)
    return run


def _inside(operator: Any, argument: Any) -> frozenset[str] | None:
    """The best set inside an item that cannot be spelled out as a whole."""
    if operator is sre.SUBPATTERN:
        return _best_of(list(argument[3]))
    if operator is sre.BRANCH:
        parts: set[str] = set()
        for branch in argument[1]:
            best = _best_of(list(branch))
            if best is None:
                return None
            parts |= best
        return frozenset(parts) if len(parts) <= _MAX_ALTERNATIVES else None
    if operator in (sre.MAX_REPEAT, sre.MIN_REPEAT):
        least, _, body = argument
        return _best_of(list(body)) if least >= 1 else None
    return None


_ANCHOR = re.compile(r"(\\.|\[\^?\]?(?:\\.|[^\]\\])*\])|[\^$]")
# What may stand before and behind a message: the end of a prefix, blanks, an escape, a bar, a box.
_LOOSE = {"^": r"(?:^|[\s\]:|,)>│┃])", "$": r"(?:[\s\\|\d│┃]|$)"}
_LOOSE_BYTES = {"^": r"(?:^|[\s\]:|,)>\x82\x83]|\\[nrt])", "$": r"(?:[\s\\|\d\xe2]|$)"}
_COUNT = re.compile(r"(\\.)|\{(\d+),(\d+)\}")
_NAMED = re.compile(r"\(\?P<\w+>")


def _loosened(pattern: str) -> str:
    """The pattern where prefixes, bars and boxes may stand beside the message."""
    return _ANCHOR.sub(lambda m: m[1] or _LOOSE[m[0]], pattern)


def prefilter_regex(pattern: str) -> bytes:
    """A regex over raw bytes that matches wherever the pattern can match a cleaned line.

    Anchors are loosened, because prefixes may stand before the message; upper bounds go, because
    they count characters and make the automaton large.
    """
    text = _ANCHOR.sub(lambda m: m[1] or _LOOSE_BYTES[m[0]], pattern)
    text = _COUNT.sub(lambda m: m[1] or f"{{{m[2]},}}", text)
    return _NAMED.sub("(?:", text).encode()
