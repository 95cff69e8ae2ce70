"""A bounded sample of each series of points, the same however the text is cut into pieces."""

from __future__ import annotations

import math
from collections import deque

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

    def add(self, point: Point) -> None:
        """Takes the next point of the text."""
        key = (point.series, point.rank)
        series = self._series.get(key)
        if series is None:
            if (len(self._series) + 1) * _LEAST > max(self._max_points, _LEAST):
                return
            while (len(self._series) + 1) * self._room > max(self._max_points, _LEAST):
                self._room //= 2
                for known in self._series.values():
                    known.shrink(self._room)
            series = self._series[key] = _Series(self._room)
        series.add(point)

    @property
    def points(self) -> list[Point]:
        """What is kept, in the order of the text."""
        numbered = [item for series in self._series.values() for item in series.kept()]
        numbered.sort(key=lambda item: (item[1].line, item[0]))
        return [point for _, point in numbered]

    def counts(self) -> dict[str, int]:
        """How many points each series had: `loss`, or `loss:3` for rank 3."""
        return {
            name if rank is None else f"{name}:{rank}": series.seen
            for (name, rank), series in self._series.items()
        }


_Numbered = tuple[int, Point]


class _Series:
    def __init__(self, room: int) -> None:
        self.seen = 0
        self._head: list[_Numbered] = []
        self._middle: list[_Numbered] = []
        self._tail: deque[_Numbered] = deque()
        self._passed = 0
        self._stride = 1
        self._beside: dict[str, _Numbered] = {}
        self._last_finite: _Numbered | None = None
        self._is_finite = True
        self._limit(room)

    def _limit(self, room: int) -> None:
        free = max(room - _KEPT_BESIDE, 8)
        self._head_room, self._tail_room = free // 8, free // 2
        self._middle_room = free - self._head_room - self._tail_room

    def add(self, point: Point) -> None:
        item = (self.seen, point)
        self.seen += 1
        self._note(item)
        if len(self._head) < self._head_room and not self._tail:
            self._head.append(item)
            return
        self._tail.append(item)
        self._overflow()

    def shrink(self, room: int) -> None:
        self._limit(room)
        del self._head[self._head_room :]
        self._overflow()

    def _overflow(self) -> None:
        while len(self._tail) > self._tail_room:
            item = self._tail.popleft()
            if self._passed % self._stride == 0:
                self._middle.append(item)
            self._passed += 1
        while len(self._middle) > self._middle_room:
            self._middle = self._middle[::2]
            self._stride *= 2

    def _note(self, item: _Numbered) -> None:
        beside, value = self._beside, item[1].value
        if math.isfinite(value):
            self._last_finite, self._is_finite = item, True
            if "least" not in beside or value < beside["least"][1].value:
                beside["least"] = item
            if "most" not in beside or value > beside["most"][1].value:
                beside["most"] = item
            return
        if self._is_finite:
            beside["run"] = item
            if self._last_finite is not None:
                beside["before run"] = self._last_finite
            if "onset" not in beside:
                beside["onset"] = item
                if self._last_finite is not None:
                    beside["before onset"] = self._last_finite
        self._is_finite = False

    def kept(self) -> list[_Numbered]:
        items = (*self._head, *self._middle, *self._tail, *self._beside.values())
        return list({item[0]: item for item in items}.values())
