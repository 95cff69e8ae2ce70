"""Series of an incident as a page draws them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

from triage.engine import Evidence
from triage.engine.evidence import Point
from triage.engine.series import MAX_POINTS, MAX_RANKS, MAX_SERIES, summaries

Scan = Callable[..., Evidence]


def diverging(rank: str = "", steps: int = 900) -> str:
    return "".join(
        f"{rank}step {n} loss {'nan' if n > steps - 50 else 2.5} mem: {4000 + n} MiB\n"
        for n in range(1, steps + 1)
    )


def test_what_a_fact_speaks_of_comes_first(scan_text: Scan) -> None:
    healthy = scan_text("".join(f"step {n} loss 2.{n} lr 1e-4\n" for n in range(9)))
    first, second, *rest = summaries([healthy, scan_text(diverging())])
    assert (first.name, first.text_index, second.name) == ("loss", 1, "gpu_memory")
    assert first.note.startswith("The loss is not a number from line 851 (step 851) on")
    assert second.unit == "MiB"
    assert second.note == "GPU memory rose from 4001 to 4900 MiB and never fell."
    assert [(s.name, s.note) for s in rest] == [("loss", ""), ("learning_rate", "")]


def test_points_are_few_and_keep_what_tells(scan_text: Scan) -> None:
    (loss, *_) = summaries([scan_text(diverging())])
    lines = [line for line, _ in loss.points]
    assert lines == sorted(set(lines))
    assert len(lines) <= MAX_POINTS
    assert (lines[0], lines[-1]) == (1, 900)
    assert next(line for line, value in loss.points if math.isnan(value)) == 851
    document = loss.to_json()
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert document["points"][-1] == [900, None]


def test_the_rank_that_a_fact_names_is_among_the_few(scan_text: Scan) -> None:
    text = "".join(
        f"[rank{r}]: step {n} loss {'nan' if r == 7 and n > 20 else 2.5}\n"
        for n in range(30)
        for r in range(8)
    )
    found = summaries([scan_text(text)])
    assert len(found) == MAX_RANKS
    assert found[0].rank == 7
    assert all(not s.note for s in found[1:])


def test_few_points_draw_no_line(scan_text: Scan) -> None:
    assert summaries([scan_text("step 1 loss 2.0\nstep 2 loss 1.0\n"), Evidence()]) == []


def test_many_texts_stay_bounded() -> None:
    points = [Point("loss", n, 1.0) for n in range(5)]
    assert len(summaries([Evidence(points=points) for _ in range(500)])) == MAX_SERIES
