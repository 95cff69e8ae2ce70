"""Which lines of a text tell of one failure: a long log may tell of several, each with its own.

A run that goes on after an error has survived it; what fails hours or thousands of lines later
has a cause of its own.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol, TypeVar

from triage.engine.evidence import Evidence, Progress
from triage.engine.regex import regex

# What stands this close belongs together, whatever stamps and counters say.
_TOGETHER_LINES = 200
# Without stamps: further lines part failures. With stamps, this many at most.
_NEAR_LINES = 2_000
_NEAR_LINES_STAMPED = 100_000
# So many parts of a text are told apart; more is one storm of errors.
_MAX_CUTS = 400
# A peer waits for a dead rank until its collective times out: by default 30 minutes at most.
_WAIT_S = 1_800.0
_SLACK_S = 600.0
_LONGEST_WAIT_S = 6 * 3_600.0
_ENDS_THE_PROCESS = regex(
    r"(?:CANCELLED AT|Fatal Python error|core dumped|terminate called|[Kk]illed process|oom-kill:|"
    r"OMP: Error #|fallen off the bus|entire process down|OOMKilled|\bSIG(?:KILL|SEGV|ABRT|BUS)\b)"
)


@dataclass(frozen=True, slots=True)
class _Event:
    """A stretch of lines that tells of a failure; `time` is of its first line."""

    line: int
    end_line: int
    time: float | None
    host: str | None


class Course:
    """How far the ranks of one text came, and whether one went on after a line."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._gains: dict[int | None, list[list[int]]] = {}

    def went_on(self, rank: int | None, line: int, text: str = "") -> bool:
        """Whether a counter of the rank rose by several steps after the line.

        Not if the line's `text` says that the process ended, or a launcher says so before the
        counter moved again: then another process took the rank's place.
        """
        if rank not in self._gains:
            self._gains[rank] = list(_rises(self._evidence.progress, rank))
        after = [rises for rises in self._gains[rank] if len(rises) >= 3 and rises[-3] > line]
        if not after or _ENDS_THE_PROCESS.search(text):
            return False
        resumed = min(rises[bisect_right(rises, line)] for rises in after)
        return not any(
            line <= ending.line < resumed
            and (ending.exit_code or ending.signal)
            and (ending.rank is None or rank is None or ending.rank == rank)
            for ending in self._evidence.exits
            if ending.source != "shell"
        )


def _rises(progress: Sequence[Progress], rank: int | None) -> Iterator[list[int]]:
    """For each counter of the rank the lines on which it reached a new height."""
    counters: dict[tuple[str, int | None], list[Progress]] = defaultdict(list)
    for step in progress:
        if step.rank == rank:
            counters[step.name, step.total].append(step)
    for steps in counters.values():
        if _counts(steps):
            highest, lines = -1, []
            for step in steps:
                if step.done > highest:
                    highest = step.done
                    lines.append(step.line)
            yield lines


def _counts(steps: Sequence[Progress]) -> bool:
    """Whether the numbers are those of a counter: they seldom fall, but for a new epoch or run."""
    values = [step.done for step in steps]
    tenth = (max(values) - min(values)) / 10
    falls = sum(before - after > max(tenth, 2) for before, after in pairwise(values))
    return falls * 4 <= len(values)


def split(evidences: Sequence[Evidence]) -> list[list[Evidence]]:
    """The evidence of each failure, oldest first: the same texts, each with its part of the lines.

    One part with all of them unless a text shows that failures stand apart. What stands at the end
    of one text happened with what stands at the end of the others.
    """
    events = [sorted(_events(evidence), key=lambda event: event.line) for evidence in evidences]
    cuts = [_cuts(*both)[-_MAX_CUTS:] for both in zip(evidences, events, strict=True)]
    most = max((len(c) for c in cuts), default=0)
    if most == 0:
        return [list(evidences)]
    evidences = [_in_order(evidence) for evidence in evidences]
    parts = []
    for number in range(most + 1):
        part = []
        for evidence, own, told in zip(evidences, cuts, events, strict=True):
            bounds = [0] * (most - len(own)) + [0, *own, evidence.lines + 1]
            begin, end = bounds[number], bounds[number + 1]
            at = bisect_right(told, end, key=lambda event: event.line)
            goes_on_to = told[at].line if at < len(told) else end
            is_last = number == most
            part.append(_part(evidence, begin, end, goes_on_to, is_last=is_last))
        parts.append(part)
    return parts


def _cuts(evidence: Evidence, events: Sequence[_Event]) -> list[int]:
    """Lines behind which another failure begins."""
    wait_s = max(
        [_WAIT_S, *(e.timeout_ms / 1_000 for e in evidence.collectives if e.timeout_ms is not None)]
    )
    wait_s = min(wait_s, _LONGEST_WAIT_S) + _SLACK_S
    marks = [step.line for step in evidence.progress]
    cuts = []
    end: _Event | None = None
    for event in events:
        if end is not None and not _is_near(end, event, wait_s):
            cuts.append((end.end_line + event.line) // 2)
        elif end is not None and event.line - end.end_line > _TOGETHER_LINES:
            between = evidence.progress[
                bisect_right(marks, end.end_line) : bisect_right(marks, event.line)
            ]
            if any(
                len(rises) >= 3
                for rank in {step.rank for step in between}
                for rises in _rises(between, rank)
            ):
                cuts.append((end.end_line + event.line) // 2)
        if end is None or event.end_line >= end.end_line:
            end = event
    return cuts


def _events(evidence: Evidence) -> Iterator[_Event]:
    for hit in evidence.hits:
        if not (hit.mention or hit.warning or hit.handled):
            yield _Event(hit.line, hit.end_line or hit.line, hit.time, hit.host)
    for traceback in evidence.tracebacks:
        if not traceback.warning:
            yield _Event(traceback.line, traceback.end_line, traceback.time, traceback.host)
    for call in evidence.collectives:
        yield _Event(call.line, call.line, call.time, call.host)
    for ending in evidence.exits:
        if ending.exit_code or ending.signal:
            yield _Event(ending.line, ending.line, None, ending.host)


def _is_near(one: _Event, other: _Event, wait_s: float) -> bool:
    """Whether the second event can be of the same failure, by its stamp or by its line."""
    lines = other.line - one.end_line
    if lines <= _TOGETHER_LINES:
        return True
    if one.time is not None and other.time is not None and one.host == other.host:
        return abs(other.time - one.time) <= wait_s and lines <= _NEAR_LINES_STAMPED
    return lines <= _NEAR_LINES


def _part(evidence: Evidence, begin: int, end: int, goes_on_to: int, *, is_last: bool) -> Evidence:
    """What the lines behind `begin` up to `end` show; a run's end belongs to the last part.

    `lines` is then the last line's number. Progress goes on up to the next failure: it tells what
    was survived.
    """
    if begin == 0 and is_last:
        return evidence
    return replace(
        evidence,
        lines=min(end, evidence.lines),
        hits=_within(evidence.hits, begin, end),
        tracebacks=_within(evidence.tracebacks, begin, end),
        collectives=_within(evidence.collectives, begin, end),
        stacks=_within(evidence.stacks, begin, end),
        exits=_within(evidence.exits, begin, end),
        points=_within(evidence.points, begin, end),
        errors=_within(evidence.errors, begin, end),
        progress=_within(evidence.progress, begin, goes_on_to),
        last_lines=evidence.last_lines if is_last else {},
        batches=evidence.batches if is_last else {},
        flight=evidence.flight if is_last else None,
    )


class _HasLine(Protocol):
    @property
    def line(self) -> int: ...


_Item = TypeVar("_Item", bound=_HasLine)


def _within(items: Sequence[_Item], begin: int, end: int) -> list[_Item]:
    first = bisect_right(items, begin, key=_line_of)
    return list(items[first : bisect_right(items, end, first, key=_line_of)])


def _line_of(item: _HasLine) -> int:
    return item.line


def _in_order(evidence: Evidence) -> Evidence:
    """The same with all that stands at a line in the order of the lines."""
    return replace(
        evidence,
        hits=sorted(evidence.hits, key=_line_of),
        tracebacks=sorted(evidence.tracebacks, key=_line_of),
        collectives=sorted(evidence.collectives, key=_line_of),
        stacks=sorted(evidence.stacks, key=_line_of),
        exits=sorted(evidence.exits, key=_line_of),
        points=sorted(evidence.points, key=_line_of),
        errors=sorted(evidence.errors, key=_line_of),
        progress=sorted(evidence.progress, key=_line_of),
    )
