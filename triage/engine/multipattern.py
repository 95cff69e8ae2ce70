"""Which patterns may match where in a block: one multi-pattern pass, whatever engine serves it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

from triage.engine import store
from triage.engine.patterns import (
    Literal,
    Pattern,
    healthy_text,
    is_common,
    prefilter_regex,
)
from triage.engine.sieve import (
    ATOM_BYTES,
    Atom,
    Need,
    Sieve,
    choose_atoms,
    expression_of,
    needs_of,
    regex_atoms,
)

hyperscan: Any
try:
    import hyperscan
except ImportError:
    hyperscan = None
try:
    import re2
except ImportError:
    re2 = None

# Beyond so many events of one expression in a block, one a line must do: a line can hold a million.
EVENTS_PER_BLOCK = 512


class Finder(Protocol):
    """Searches the blocks of one long text."""

    def find(self, block: bytes | memoryview) -> list[tuple[int, int]]:
        """As Matcher.find, but may leave out what cannot match on its line."""
        ...

    def mute(self, pattern: int) -> None:
        """Says that no more matches of this pattern are wanted; some may be found all the same."""
        ...


class _PlainFinder:
    def __init__(self, find: Callable[[bytes], list[tuple[int, int]]]) -> None:
        self._find = find

    def find(self, block: bytes | memoryview) -> list[tuple[int, int]]:
        """What the matcher finds, all of it."""
        return self._find(bytes(block))

    def mute(self, pattern: int) -> None:
        """A plain search finds whatever there is."""


class Matcher(Protocol):
    """Finds candidates: no match is missed, but what it finds must be confirmed."""

    name: str

    def find(self, block: bytes) -> list[tuple[int, int]]:
        """(offset of a byte inside the match, pattern number), in order of the offsets."""
        ...

    def for_long_text(self) -> Finder:
        """What searches the middle of one long text; patterns of `skipped` may be left out."""
        ...


def build_matcher(
    patterns: Sequence[Pattern],
    engine: str = "",
    key: str = "",
    skipped: Collection[int] = (),
) -> Matcher:
    """The fastest matcher that this machine has, or the named one: hyperscan, re2, re.

    What is compiled is kept in the store under the key, if there is one; `skipped` are numbers of
    patterns that are not wanted from long texts. Raises ImportError if the named engine is not
    installed, ValueError for an unknown name.
    """
    if engine not in ("", "hyperscan", "re2", "re"):
        raise ValueError(f"unknown matching engine {engine!r}")
    if engine == "hyperscan" or (not engine and hyperscan is not None):
        return HyperscanMatcher(patterns, key, skipped)
    if engine == "re2" or (not engine and re2 is not None):
        return Re2Matcher(patterns)
    return ReMatcher(patterns)


# A literal this short fires on ordinary words; behind it the whole pattern decides.
_SHORT_LITERAL_BYTES = 5

_Expression = tuple[bytes, bool, bool, tuple[int, ...]]


def _expressions(patterns: Sequence[Pattern], *, literals_only: bool = False) -> list[_Expression]:
    """(expression, is_literal, ignore_case, pattern numbers), each expression once."""
    owners: dict[tuple[bytes, bool, bool], list[int]] = {}
    for number, pattern in enumerate(patterns):
        literals = pattern.literals
        if literals and (literals_only or not _is_noisy(literals)):
            for text, ignore_case in literals:
                owners.setdefault((text, True, ignore_case), []).append(number)
        else:
            key = (prefilter_regex(pattern.text), False, False)
            owners.setdefault(key, []).append(number)
    return [(*key, tuple(numbers)) for key, numbers in owners.items()]


def _is_noisy(literals: Sequence[Literal]) -> bool:
    """Whether healthy logs hold one of the literals: each such line would cost a callback."""
    return any(
        len(text) < _SHORT_LITERAL_BYTES or is_common(text, ignore_case=ignore_case)
        for text, ignore_case in literals
    )


def _compile_database(expressions: Sequence[bytes], ignore_case: Sequence[bool]) -> Any:
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    database.compile(
        expressions=list(expressions),
        ids=list(range(len(expressions))),
        elements=len(expressions),
        flags=[hyperscan.HS_FLAG_CASELESS if ignore else 0 for ignore in ignore_case],
    )
    return database


def _load_database(blob: bytes) -> Any:
    """A saved database, or None where this machine or version cannot use it."""
    try:
        database = hyperscan.loadb(blob, hyperscan.HS_MODE_BLOCK)
        database.scratch = hyperscan.Scratch(database)
    except hyperscan.error:
        return None
    return database


# Hyperscan takes larger, more telling tables from 800 literals on, and steps of another width for
# under 250: between a few dozen and 800 literals it reads up to three times as slowly as with 800.
_PADDED_FROM, _PADDED_TO = 48, 808


def _compile_atoms(atoms: Sequence[Atom]) -> Any:
    """The database of the coarse pass, with literals that no UTF-8 holds where that is faster."""
    expressions = [expression_of(atom) for atom in atoms]
    ignore_case = [atom.ignore_case for atom in atoms]
    if _PADDED_FROM < len(atoms) < _PADDED_TO:
        missing = _PADDED_TO - len(atoms)
        expressions += [
            bytes(0xF8 + (number >> 3 * place & 7) for place in range(ATOM_BYTES))
            for number in range(0o1234567, 0o1234567 + 9973 * missing, 9973)
        ]
        ignore_case += [False] * missing
    return _compile_database(expressions, ignore_case)


class HyperscanMatcher:
    """Hyperscan in block mode over the patterns' required literals.

    A pattern without a required literal goes in as it is. Not thread-safe: one per thread.
    """

    name = "hyperscan"

    def __init__(
        self, patterns: Sequence[Pattern], key: str = "", skipped: Collection[int] = ()
    ) -> None:
        if hyperscan is None:
            raise ImportError("the hyperscan wheel is not installed")
        self._patterns = patterns
        self._skipped = frozenset(skipped)
        self._key = key and f"{key}-{hyperscan.__version__}"
        self._database: Any = None
        self._owners: list[tuple[int, ...]] = []
        self._coarse: tuple[list[Need], list[Atom], Any] | None = None
        if not patterns or self._restore():
            return
        try:
            self._compile(_expressions(patterns))
        except hyperscan.error:
            # A construct that it refuses in some pattern: the literals find all candidates too.
            self._compile(_expressions(patterns, literals_only=True))
        if self._key:
            store.save(self._key, self._owners, [hyperscan.dumpb(self._database)])

    def _restore(self) -> bool:
        saved = store.load(self._key) if self._key else None
        if saved is None:
            return False
        owners, (blob,) = saved
        self._owners = [tuple(numbers) for numbers in owners]
        self._database = _load_database(blob)
        return self._database is not None

    def _compile(self, expressions: Sequence[_Expression]) -> None:
        self._owners = [numbers for *_, numbers in expressions]
        self._database = _compile_database(
            [re.escape(text) if is_literal else text for text, is_literal, _, _ in expressions],
            [ignore_case for _, _, ignore_case, _ in expressions],
        )

    def for_long_text(self) -> Finder:
        """See Matcher.for_long_text: a sieve before the literals."""
        if self._database is None:
            return _PlainFinder(self.find)
        if self._coarse is None:
            self._coarse = self._restore_coarse() or self._compile_coarse()
        return Sieve(self._patterns, self._coarse, _compile_atoms, self.find)

    def _restore_coarse(self) -> tuple[list[Need], list[Atom], Any] | None:
        saved = store.load(self._coarse_key()) if self._key else None
        if saved is None:
            return None
        rows, (blob,) = saved
        database = _load_database(blob)
        if database is None:
            return None
        atoms = [
            Atom(text.encode("latin-1"), is_literal, ignore_case, tuple(needs), tuple(numbers))
            for text, is_literal, ignore_case, needs, numbers in rows
        ]
        return needs_of(self._patterns, self._skipped), atoms, database

    def _compile_coarse(self) -> tuple[list[Need], list[Atom], Any]:
        needs = needs_of(self._patterns, self._skipped)
        regexes = regex_atoms(self._patterns, self._skipped)
        atoms = [*choose_atoms(needs, healthy_text()), *regexes]
        database = _compile_atoms(atoms)
        if self._key:
            rows = [
                (a.text.decode("latin-1"), a.is_literal, a.ignore_case, a.needs, a.patterns)
                for a in atoms
            ]
            store.save(self._coarse_key(), rows, [hyperscan.dumpb(database)])
        return needs, atoms, database

    def _coarse_key(self) -> str:
        return store.key_of("coarse", self._key, list(map(str, sorted(self._skipped))))

    def find(self, block: bytes) -> list[tuple[int, int]]:
        """See Matcher.find."""
        if self._database is None:
            return []
        events: list[tuple[int, int]] = []
        counts: dict[int, int] = {}
        latest: dict[int, int] = {}

        def on_match(number: int, start: int, end: int, flags: int, context: Any) -> None:
            seen = counts.get(number, 0)
            counts[number] = seen + 1
            if seen < EVENTS_PER_BLOCK or block.find(b"\n", latest[number], end) >= 0:
                events.append((end - 1, number))
            latest[number] = end

        self._database.scan(block, match_event_handler=on_match)
        return _spread(events, self._owners)


# Where more patterns than a few occur in a block, it is searched in pieces of whole lines.
_FEW = 8
_PIECE_BYTES = 8 * 1024


class Re2Matcher:
    """RE2's Set tells which patterns occur in a piece, then each one's literals tell where."""

    name = "re2"

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        if re2 is None:
            raise ImportError("the google-re2 wheel is not installed")
        expressions = _expressions(patterns)
        self._owners = [numbers for *_, numbers in expressions]
        self._finders = [_finder(text, lit, nocase) for text, lit, nocase, _ in expressions]
        self._set = None
        # Whether many patterns occurred in the block before.
        self._is_crowded = False
        if not expressions:
            return
        options = re2.Options()
        options.max_mem = 256 << 20
        options.encoding = re2.Options.Encoding.LATIN1
        options.log_errors = False
        self._set = re2.Set.SearchSet(options)
        for text, is_literal, ignore_case, _ in expressions:
            body = re2.escape(text.decode("latin-1")) if is_literal else text.decode("latin-1")
            self._set.Add(("(?i)" if ignore_case else "") + "(?m)" + body)
        self._set.Compile()

    def for_long_text(self) -> Finder:
        """See Matcher.for_long_text."""
        return _PlainFinder(self.find)

    def find(self, block: bytes) -> list[tuple[int, int]]:
        """See Matcher.find."""
        if self._set is None:
            return []
        if self._is_crowded and len(block) > _PIECE_BYTES:
            return self._find_in_pieces(block)
        numbers = self._set.Match(block) or ()
        if len(numbers) > _FEW and len(block) > _PIECE_BYTES:
            return self._find_in_pieces(block)
        events: list[tuple[int, int]] = []
        for number in numbers:
            events.extend(_occurrences(self._finders[number], block, number))
        return _spread(events, self._owners)

    def _find_in_pieces(self, block: bytes) -> list[tuple[int, int]]:
        """The same, where so many patterns occur that each would be sought in all of it."""
        seen: set[int] = set()
        events: list[tuple[int, int]] = []
        begin = 0
        while begin < len(block):
            end = block.find(b"\n", begin + _PIECE_BYTES) + 1 or len(block)
            piece = block[begin:end]
            numbers = self._set.Match(piece) or () if self._set is not None else ()
            seen.update(numbers)
            for number in numbers:
                found = _occurrences(self._finders[number], piece, number)
                events.extend((begin + offset, number) for offset, number in found)
            begin = end
        self._is_crowded = len(seen) > _FEW
        return _spread(events, self._owners)


class ReMatcher:
    """Python's `re` on the literals alone: slow, and there on every machine."""

    name = "re"

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        expressions = _expressions(patterns)
        self._owners = [numbers for *_, numbers in expressions]
        self._finders = [_finder(text, lit, nocase) for text, lit, nocase, _ in expressions]

    def for_long_text(self) -> Finder:
        """See Matcher.for_long_text."""
        return _PlainFinder(self.find)

    def find(self, block: bytes) -> list[tuple[int, int]]:
        """See Matcher.find."""
        events: list[tuple[int, int]] = []
        for number, finder in enumerate(self._finders):
            events.extend(_occurrences(finder, block, number))
        return _spread(events, self._owners)


def _finder(text: bytes, is_literal: bool, ignore_case: bool) -> Callable[[bytes, int], int]:
    """Where the next match behind an offset ends, -1 without one; bytes.find outruns `re`."""
    if is_literal and not ignore_case:

        def find(block: bytes, position: int) -> int:
            start = block.find(text, position)
            return -1 if start < 0 else start + len(text)

        return find
    flags = re.IGNORECASE if ignore_case else 0
    regex = re.compile(re.escape(text) if is_literal else text, flags | re.MULTILINE)

    def search(block: bytes, position: int) -> int:
        found = regex.search(block, position)
        return -1 if found is None else found.end()

    return search


def _occurrences(
    next_end: Callable[[bytes, int], int], block: bytes, number: int
) -> list[tuple[int, int]]:
    events = []
    position = 0
    while (end := next_end(block, position)) >= 0:
        events.append((max(end - 1, 0), number))
        position = end
        if len(events) >= EVENTS_PER_BLOCK:
            position = block.find(b"\n", max(end - 1, 0)) + 1
            if not position:
                break
    return events


def _spread(
    events: list[tuple[int, int]], owners: Sequence[tuple[int, ...]]
) -> list[tuple[int, int]]:
    events.sort()
    return [(offset, owner) for offset, number in events for owner in owners[number]]
