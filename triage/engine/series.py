"""The series of an incident, small enough to draw beside its verdict."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from triage.engine import facts
from triage.engine.evidence import Evidence, Point

MAX_SERIES = 24
MAX_POINTS = 200
#: Of one series in one text; the ranks of a healthy job look alike.
MAX_RANKS = 4
#: Fewer points draw no line.
MIN_POINTS = 4

_UNITS = {
    "gpu_memory": "MiB", "host_memory": "MiB", "step_time": "s", "epoch_time": "s",
}  # fmt: skip
_ORDER = (
    "loss", "val_loss", "grad_norm", "loss_scale", "gpu_memory", "host_memory", "step_time",
    "epoch_time", "learning_rate",
)  # fmt: skip
# The facts that speak of one series, in a sentence.
_NOTES = {
    "loss": facts.loss_is_nan,
    "grad_norm": facts.gradient_norm_explodes,
    "loss_scale": facts.loss_scale_keeps_falling,
    "gpu_memory": facts.memory_rises_every_step,
    "host_memory": facts.host_memory_rises,
    "step_time": facts.step_time_grows,
}


@dataclass(frozen=True, slots=True)
class SeriesSummary:
    """One series of one rank in text `text_index`: (line, value) in order, and what it shows.

    `note` is a sentence where a fact speaks of the series, else "". Values may be NaN or infinite.
    """

    name: str
    unit: str
    rank: int | None
    points: tuple[tuple[int, float], ...]
    note: str = ""
    text_index: int = 0

    def to_json(self) -> dict[str, Any]:
        """JSON-able; a value that is no finite number is None."""
        return {
            "name": self.name,
            "unit": self.unit,
            "rank": self.rank,
            "text_index": self.text_index,
            "note": self.note,
            "points": [
                [line, value if math.isfinite(value) else None] for line, value in self.points
            ],
        }


def summaries(evidences: Sequence[Evidence]) -> list[SeriesSummary]:
    """The series worth drawing: those that a fact speaks of first, then losses, norms, memory."""
    found: dict[tuple[int, str], list[SeriesSummary]] = defaultdict(list)
    for index, evidence in enumerate(evidences):
        by_rank: dict[tuple[str, int | None], list[Point]] = defaultdict(list)
        for point in evidence.points:
            if point.series in _ORDER:
                by_rank[point.series, point.rank].append(point)
        for (name, rank), points in by_rank.items():
            if len(points) >= MIN_POINTS:
                found[index, name].append(_summary(index, name, rank, points))
    result: list[SeriesSummary] = []
    noted = _noted(evidences)
    for (index, name), members in found.items():
        told = [
            s
            if (note := noted.get((index, name, s.rank))) is None
            else SeriesSummary(s.name, s.unit, s.rank, s.points, note, index)
            for s in members
        ]
        told.sort(key=lambda s: (not s.note, s.rank is not None, s.rank or 0))
        result.extend(told[:MAX_RANKS])
    result.sort(key=lambda s: (not s.note, _ORDER.index(s.name), s.text_index, s.rank or 0))
    return result[:MAX_SERIES]


def _noted(evidences: Sequence[Evidence]) -> dict[tuple[int, str, int | None], str]:
    """The sentence of each fact by the text, the series and the rank that it speaks of."""
    notes = {}
    for name, question in _NOTES.items():
        fact = question(evidences)
        if fact is not None and fact.evidence:
            sentence = f"{fact.because[:1].upper()}{fact.because[1:]}."
            notes[fact.evidence[0].text_index, name, fact.rank] = sentence
    return notes


def _summary(index: int, name: str, rank: int | None, points: Sequence[Point]) -> SeriesSummary:
    kept = tuple((p.line, p.value) for p in _thinned(points))
    return SeriesSummary(name, _UNITS.get(name, ""), rank, kept, "", index)


def _thinned(points: Sequence[Point]) -> list[Point]:
    """At most MAX_POINTS: both ends, each stretch's least and most, where numbers end."""
    if len(points) <= MAX_POINTS:
        return list(points)
    stretches = (MAX_POINTS - 2) // 3
    kept = {0, len(points) - 1}
    for number in range(stretches):
        start = number * len(points) // stretches
        span = range(start, (number + 1) * len(points) // stretches)
        finite = [i for i in span if math.isfinite(points[i].value)]
        if finite:
            kept.add(min(finite, key=lambda i: points[i].value))
            kept.add(max(finite, key=lambda i: points[i].value))
        if len(finite) < len(span):
            kept.add(next(i for i in span if not math.isfinite(points[i].value)))
    return [points[index] for index in sorted(kept)]
