"""A bounded sample of each series of points, the same however the text is cut into pieces."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from math import inf, isfinite

from triage.engine.evidence import Point

#: Below this a series has no shape left; series beyond what that allows are not begun.
_LEAST = 16
#: Points that are kept besides: least, most, and where the series stopped being finite.
_KEPT_BESIDE = 8


class PointSample:
    """Series by name and rank, at most `max_points` together.

    Of each series the first and the last points are kept one by one, those between at a stride
    that doubles; so are its least, its most, the first that is no finite number and the start of
    the last run of such, each with the finite point before it.
    """

    def __init__(self, max_points: int) -> None:
        self._max_points = max_points
        self._room = max(max_points, _LEAST)
        self._series: dict[tuple[str, int | None], _Series] = {}

    def add(self, name: str, line: int, value: float, rank: int | None, step: int | None) -> None:
        """Takes the next point of the text."""
        series = self._series.get((name, rank))
        if series is None:
            if (len(self._series) + 1) * _LEAST > max(self._max_points, _LEAST):
                return
            while (len(self._series) + 1) * self._room > max(self._max_points, _LEAST):
                self._room //= 2
                for known in self._series.values():
                    known.shrink(self._room)
            series = self._series[name, rank] = _Series(self._room)
        series.add(line, value, step)

    @property
    def points(self) -> list[Point]:
        """What is kept, in the order of the text."""
        numbered = [
            (line, number, Point(name, line, value, rank, step))
            for (name, rank), series in self._series.items()
            for number, line, value, step in series.kept()
        ]
        numbered.sort(key=lambda item: item[:2])
        return [point for *_, point in numbered]

    def counts(self) -> dict[str, int]:
        """How many points each series had: `loss`, or `loss:3` for rank 3."""
        return {
            name if rank is None else f"{name}:{rank}": series.seen
            for (name, rank), series in self._series.items()
        }


# A point without the names of its series: its number in the series, line, value and step.
_Item = tuple[int, int, float, int | None]


class _Series:
    def __init__(self, room: int) -> None:
        self.seen = 0
        self._head: list[_Item] = []
        self._middle: list[_Item] = []
        self._tail: deque[_Item] = deque()
        self._passed = 0
        self._stride = 1
        self._least: _Item | None = None
        self._least_value = inf
        self._most: _Item | None = None
        self._most_value = -inf
        # Where the first and the last run of such as are no finite numbers begin, and the finite
        # point before each.
        self._onset: tuple[_Item, ...] = ()
        self._run: tuple[_Item, ...] = ()
        self._last_finite: _Item | None = None
        self._is_finite = True
        self._limit(room)

    def _limit(self, room: int) -> None:
        free = max(room - _KEPT_BESIDE, 8)
        self._head_room, self._tail_room = free // 8, free // 2
        self._middle_room = free - self._head_room - self._tail_room

    def add(self, line: int, value: float, step: int | None) -> None:
        item = (self.seen, line, value, step)
        self.seen += 1
        if isfinite(value):
            self._last_finite = item
            if value < self._least_value:
                self._least, self._least_value = item, value
            if value > self._most_value:
                self._most, self._most_value = item, value
            self._is_finite = True
        elif self._is_finite:
            self._is_finite = False
            self._run = (item,) if self._last_finite is None else (self._last_finite, item)
            self._onset = self._onset or self._run
        tail = self._tail
        if not tail and len(self._head) < self._head_room:
            self._head.append(item)
            return
        tail.append(item)
        if len(tail) > self._tail_room:
            if self._passed % self._stride:
                tail.popleft()
                self._passed += 1
            else:
                self._pass_on()
                self._thin()

    def shrink(self, room: int) -> None:
        self._limit(room)
        del self._head[self._head_room :]
        while len(self._tail) > self._tail_room:
            self._pass_on()
        self._thin()

    def _pass_on(self) -> None:
        """The oldest of the tail goes to the middle, where its turn has come."""
        item = self._tail.popleft()
        if self._passed % self._stride == 0:
            self._middle.append(item)
        self._passed += 1

    def _thin(self) -> None:
        while len(self._middle) > self._middle_room:
            self._middle = self._middle[::2]
            self._stride *= 2

    def kept(self) -> Iterable[_Item]:
        ends = [item for item in (self._least, self._most) if item is not None]
        items = (*self._head, *self._middle, *self._tail, *ends, *self._onset, *self._run)
        return {item[0]: item for item in items}.values()
