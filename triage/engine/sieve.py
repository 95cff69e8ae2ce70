"""A coarse pass over long texts: few short literals tell which lines the fine pass has to see."""

from __future__ import annotations

import heapq
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from triage.engine.patterns import Literal, Pattern, prefilter_regex

# Long enough to be rare in text, short enough for many patterns to share one; the engine hashes
# eight bytes at once and has more to confirm behind a longer one.
ATOM_BYTES = 8
# To compile the atoms anew costs as much as so many lines that were looked at in vain: when they
# have been, it is worth it. Atoms that singled out less than a fiftieth of them stay.
_WASTED_LINES = 40_000
_WASTED_BY_ONE = 800
# Where so many lines of a block are wanted, the next ones are searched without the coarse pass.
_DENSE_LINES = 40
_BLOCKS_UNSIFTED = 15


_Expression = tuple[bytes, bool, bool]


@dataclass(frozen=True, slots=True)
class Atom:
    """One expression of the coarse pass, with the numbers of the needs and patterns it serves."""

    text: bytes
    is_literal: bool
    ignore_case: bool
    needs: tuple[int, ...] = ()
    patterns: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Need:
    """A literal that the coarse pass must not miss, and the patterns that ask for it."""

    literal: Literal
    patterns: tuple[int, ...]


def needs_of(patterns: Sequence[Pattern], skipped: Collection[int] = ()) -> list[Need]:
    """The literals of all patterns but the skipped, each once; some patterns have none."""
    owners: dict[Literal, list[int]] = defaultdict(list)
    for number, pattern in enumerate(patterns):
        for literal in (number not in skipped and pattern.literals) or ():
            owners[literal].append(number)
    return [Need(literal, tuple(numbers)) for literal, numbers in owners.items()]


def choose_atoms(needs: Sequence[Need], common: bytes) -> list[Atom]:
    """Few atoms such that each need's literal contains one; none is a part of the `common` text."""
    atoms: list[Atom] = []
    for ignore_case in (False, True):
        texts = {
            index: need.literal[0].lower() if ignore_case else need.literal[0]
            for index, need in enumerate(needs)
            if need.literal[1] == ignore_case
        }
        background = common.lower() if ignore_case else common
        for text, served in _cover(texts, background):
            atoms.append(Atom(text, True, ignore_case, tuple(sorted(served))))
    return atoms


def _cover(texts: dict[int, bytes], common: bytes) -> Iterable[tuple[bytes, set[int]]]:
    """The part that most texts share first, then of the rest, as long as any is left."""
    holders: dict[bytes, set[int]] = defaultdict(set)
    for index, text in texts.items():
        for start in range(max(len(text) - ATOM_BYTES, 0) + 1):
            holders[text[start : start + ATOM_BYTES]].add(index)
    queue = [(-len(held), part) for part, held in holders.items() if part not in common]
    heapq.heapify(queue)
    left = set(texts)
    while left and queue:
        size, part = heapq.heappop(queue)
        held = holders[part] & left
        if held and len(held) < -size:
            heapq.heappush(queue, (-len(held), part))
        elif held:
            yield part, held
            left -= held
    whole: dict[bytes, set[int]] = defaultdict(set)
    for index in left:
        whole[texts[index]].add(index)
    yield from whole.items()


class Sieve:
    """Finds what the fine pass finds, for one long text, and learns what is common in it.

    An atom that singles out many lines in which no pattern matches gives way to the literals that
    it serves, and a literal to its patterns. What is found stays the same.
    """

    def __init__(
        self,
        patterns: Sequence[Pattern],
        coarse: tuple[Sequence[Need], Sequence[Atom], Any],
        compile_atoms: Callable[[Sequence[Atom]], Any],
        find: Callable[[bytes], list[tuple[int, int]]],
    ) -> None:
        self._patterns = patterns
        self._needs, atoms, self._database = coarse
        self._compile_atoms = compile_atoms
        self._find = find
        self._muted: set[int] = set()
        self._dense_blocks = 0
        self._take(atoms)
        self._proven = [0] * len(patterns)

    def find(self, block: bytes | memoryview) -> list[tuple[int, int]]:
        """See Matcher.find; what cannot match on its line is left out already."""
        if self._dense_blocks:
            self._dense_blocks -= 1
            return self._find(bytes(block))
        marks: list[tuple[int, int]] = []
        atoms = len(self._atoms)

        def on_match(number: int, start: int, end: int, flags: int, context: Any) -> None:
            if number < atoms:
                marks.append((end - 1, number))

        self._database.scan(block, match_event_handler=on_match)
        events = self._sift(bytes(block), marks) if marks else []
        if self._wasted_lines >= _WASTED_LINES:
            self._review()
        return events

    def _sift(self, block: bytes, marks: list[tuple[int, int]]) -> list[tuple[int, int]]:
        marks.sort()
        starts: list[int] = []
        ends: list[int] = []
        by: list[list[int]] = []
        end = -1
        for offset, number in marks:
            if offset < end:
                if by[-1][-1] != number:
                    by[-1].append(number)
                continue
            starts.append(block.rfind(b"\n", 0, offset) + 1)
            end = block.find(b"\n", offset) + 1 or len(block)
            ends.append(end)
            by.append([number])
        lines = [block[start:end] for start, end in zip(starts, ends, strict=True)]
        matched: list[list[int]] = [[] for _ in lines]
        events: list[tuple[int, int]] = []
        index, base, limit = 0, 0, len(lines[0])
        text: str | None = None
        for offset, number in self._find(b"".join(lines)):
            while offset >= limit:
                index += 1
                base, limit, text = limit, limit + len(lines[index]), None
            # Once a pattern has shown that it matches here, its events are not worth a check.
            if self._proven[number] < 256:
                if text is None:
                    text = lines[index].decode("utf-8", "replace")
                if not self._patterns[number].may_occur_in(text):
                    continue
                self._proven[number] += 1
            matched[index].append(number)
            events.append((starts[index] + offset - base, number))
        wasted_before = self._wasted_lines
        for found, numbers in zip(matched, by, strict=True):
            wanted = bool(found) and not self._muted.issuperset(found)
            self._wasted_lines += not wanted
            for number in numbers:
                if not wanted or self._owners[number].isdisjoint(found):
                    self._wasted[number] += 1
        wasted = self._wasted_lines - wasted_before
        if len(lines) >= _DENSE_LINES and wasted * 4 < len(lines):
            self._dense_blocks = _BLOCKS_UNSIFTED
        return events

    def mute(self, pattern: int) -> None:
        """From the next review on, lines that only such patterns ask for are not looked at."""
        if pattern not in self._muted:
            self._muted.add(pattern)
            self._dense_blocks = 0

    def _take(self, atoms: Sequence[Atom]) -> None:
        self._atoms = list(atoms)
        self._wasted = [0] * len(self._atoms)
        self._wasted_lines = 0
        self._owners = [
            frozenset(p for index in atom.needs for p in self._needs[index].patterns)
            | frozenset(atom.patterns)
            for atom in self._atoms
        ]

    def _review(self) -> None:
        """Puts something stricter in the place of atoms that cost more than they find."""
        merged: dict[_Expression, tuple[set[int], set[int]]] = {}
        before = {(a.text, a.is_literal, a.ignore_case) for a in self._atoms}
        for number, atom in enumerate(self._atoms):
            if self._owners[number] <= self._muted:
                continue
            whole = [((atom.text, atom.is_literal, atom.ignore_case), atom.needs, atom.patterns)]
            parts = self._stricter(atom) if self._wasted[number] > _WASTED_BY_ONE else whole
            for expression, needs, patterns in parts:
                held = merged.setdefault(expression, (set(), set()))
                held[0].update(needs)
                held[1].update(patterns)
        atoms = [
            Atom(*key, tuple(sorted(needs)), tuple(sorted(patterns)))
            for key, (needs, patterns) in merged.items()
        ]
        if merged.keys() != before:
            self._database = self._compile_atoms(atoms)
        self._take(atoms)

    def _stricter(
        self, atom: Atom
    ) -> Iterable[tuple[_Expression, tuple[int, ...], tuple[int, ...]]]:
        if not atom.is_literal:
            yield (atom.text, False, False), atom.needs, atom.patterns
            return
        for index in atom.needs:
            text, ignore_case = self._needs[index].literal
            wanted = [p for p in self._needs[index].patterns if p not in self._muted]
            if wanted and len(text) > len(atom.text):
                yield (text, True, ignore_case), (index,), ()
                continue
            for pattern in wanted:
                expression = prefilter_regex(self._patterns[pattern].text)
                yield (expression, False, False), (), (pattern,)


def regex_atoms(patterns: Sequence[Pattern], skipped: Collection[int] = ()) -> list[Atom]:
    """Those of patterns without a literal: they go in as they are."""
    owners: dict[bytes, list[int]] = defaultdict(list)
    for number, pattern in enumerate(patterns):
        if not pattern.literals and number not in skipped:
            owners[prefilter_regex(pattern.text)].append(number)
    return [Atom(text, False, False, (), tuple(numbers)) for text, numbers in owners.items()]


def expression_of(atom: Atom) -> bytes:
    """The atom as a regex."""
    return re.escape(atom.text) if atom.is_literal else atom.text
