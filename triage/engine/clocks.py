"""When something happened, across texts whose hosts' clocks may differ by seconds or by a zone."""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import Protocol

from triage.engine.evidence import Evidence

# One clock: the text, and the host that stamped the line.
Clock = tuple[int, str | None]
# Clocks that differ by less are in step: what they stamp takes that long to happen.
_IN_STEP_S = 10.0
# Both ends of two texts of one job lie that far apart at most, but for the clocks.
_SAME_SPAN_S = 30.0
# To so many clocks a further one is held.
_MAX_ANCHORS = 8
# Hosts whose lines alternate that often were written down as they came.
_LEAST_TURNS = 4


class Clocks:
    """Moments of all texts on one scale, where the texts themselves show how clocks differ.

    Three things show it: a collective that timed out on ranks of both hosts, which it does at one
    moment; texts that begin and end equally far apart; lines of both that alternate in one text.
    """

    def __init__(self, evidences: Sequence[Evidence]) -> None:
        self._evidences = evidences
        self._stamps: dict[Clock, list[tuple[int, float]]] = defaultdict(list)
        self._by_line: list[list[tuple[int, float, str | None]]] = []
        for index, evidence in enumerate(evidences):
            stamps = sorted(_stamps(evidence), key=lambda stamp: stamp[:2])
            self._by_line.append(stamps)
            for line, time, host in stamps:
                self._stamps[index, host].append((line, time))
        self._offsets: dict[Clock, float] = {}
        self._timeouts = {clock: _timeouts(evidences[clock[0]], clock[1]) for clock in self._stamps}
        clocks = sorted(self._stamps, key=lambda clock: (clock[0], clock[1] or ""))
        anchors = clocks[:1]
        self._offsets.update(dict.fromkeys(anchors, 0.0))
        for known in anchors:
            for clock in clocks:
                if clock in self._offsets:
                    continue
                difference = self._difference(known, clock)
                if difference is not None:
                    self._offsets[clock] = self._offsets[known] + difference
                    if len(anchors) < _MAX_ANCHORS:
                        anchors.append(clock)

    @property
    def are_several(self) -> bool:
        """Whether more than one clock stamped the lines, or more than one text has them."""
        return len(self._stamps) > 1 or len(self._evidences) > 1

    def moment(self, text_index: int, line: int) -> float | None:
        """Seconds on the scale of the first clock; of a line without a stamp by the one before it.

        As stamped where nothing shows how the clock differs; None without a stamp in the text.
        """
        stamps = self._by_line[text_index]
        if not stamps:
            return None
        at = bisect_right(stamps, line, key=lambda stamp: stamp[0])
        _, time, host = stamps[max(at - 1, 0)]
        return time - self._offsets.get((text_index, host), 0.0)

    def are_in_step(self, text_index: int, other_index: int) -> bool:
        """Whether moments of both texts are on one scale: one clock, or the difference shows."""
        clocks = [clock for clock in self._stamps if clock[0] in (text_index, other_index)]
        return len(clocks) == 1 or all(clock in self._offsets for clock in clocks)

    def _difference(self, one: Clock, other: Clock) -> float | None:
        """Seconds that the second clock is ahead of the first; None: nothing shows it."""
        calls, others = self._timeouts[one], self._timeouts[other]
        shared = [others[call] - calls[call] for call in calls.keys() & others.keys()]
        if shared:
            difference = statistics.median(shared)
        elif one[0] == other[0]:
            found = self._between_lines(one, other)
            if found is None:
                return None
            difference = found
        else:
            begin, end = self._span(one), self._span(other)
            if begin is None or end is None:
                return None
            starts, ends = end[0] - begin[0], end[1] - begin[1]
            if abs(starts - ends) > _SAME_SPAN_S:
                return None
            difference = (starts + ends) / 2
        return 0.0 if abs(difference) <= _IN_STEP_S else difference

    def _span(self, clock: Clock) -> tuple[float, float] | None:
        evidence = self._evidences[clock[0]]
        if evidence.first_time is None or evidence.last_time is None:
            return None
        hosts = {host for index, host in self._stamps if index == clock[0]}
        return (evidence.first_time, evidence.last_time) if len(hosts) == 1 else None

    def _between_lines(self, one: Clock, other: Clock) -> float | None:
        """By lines of two hosts that stand side by side in one text."""
        both = sorted(
            [(line, time, False) for line, time in self._stamps[one]]
            + [(line, time, True) for line, time in self._stamps[other]]
        )
        turns = [
            (after - before) if is_other else (before - after)
            for (_, before, was_other), (_, after, is_other) in pairwise(both)
            if was_other != is_other
        ]
        return statistics.median(turns) if len(turns) >= _LEAST_TURNS else None


def _timeouts(evidence: Evidence, host: str | None) -> dict[tuple[str, int, str], float]:
    """When which collective timed out first, by the clock of this host."""
    found: dict[tuple[str, int, str], float] = {}
    for event in evidence.collectives:
        if event.kind != "timeout" or event.host != host:
            continue
        if event.seq_num is not None and event.time is not None:
            found.setdefault((event.group, event.seq_num, event.op), event.time)
    return found


class _Stamped(Protocol):
    @property
    def line(self) -> int: ...
    @property
    def time(self) -> float | None: ...
    @property
    def host(self) -> str | None: ...


def _stamps(evidence: Evidence) -> Iterator[tuple[int, float, str | None]]:
    items: tuple[Sequence[_Stamped], ...] = (
        evidence.hits, evidence.errors, evidence.tracebacks, evidence.collectives,
    )  # fmt: skip
    for item in chain.from_iterable(items):
        if item.time is not None:
            yield item.line, item.time, item.host
