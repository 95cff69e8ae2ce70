"""Stack tree and charts of the incident page: what they say, where they lead, what they bound."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from tests.factories import HEALTHY
from triage.engine.evidence import Evidence, Frame, Point, StackDump, Thread
from triage.engine.series import MAX_POINTS
from triage.models import Diagnosis, Incident
from triage.pages.charts import build_charts, number_in_words
from triage.pages.stack_section import MAX_PLACES_OPEN, build_stacks, ranges_in_words
from triage.services import exhibits

Diagnosed = Callable[..., Incident]

_OWN = ["train_epoch (train.py:96)", "main (/workspace/<b>run</b>/train.py:151)"]
_COLLECTIVE = [
    "all_reduce (torch/distributed/distributed_c10d.py:2806)",
    "wrapper (torch/distributed/c10d_logger.py:83)",
    "_call_impl (torch/nn/modules/module.py:1553)",
    "wrapped (torch/nn/modules/module.py:1747)",
    "reduce_loss (metrics.py:22)",
]


def dump(pid: int, frames: list[str]) -> str:
    lines = "".join(f"    {frame}\n" for frame in frames)
    return f'Process {pid}: python train.py\n\nThread {pid} (idle): "MainThread"\n{lines}\n'


def hang(ranks: int = 8, odd: int = 5) -> str:
    save = ["save (torch/serialization.py:849)", "save_checkpoint (checkpoint.py:41)"]
    return "".join(
        dump(4100 + rank, (save if rank == odd else _COLLECTIVE) + _OWN) for rank in range(ranks)
    )


def diverging(steps: int = 60, nan_from: int = 50) -> str:
    return "".join(
        f"step {n * 10} loss {'nan' if n >= nan_from else f'{2.5 - n * 0.02:.3f}'}\n"
        for n in range(steps)
    )


def link(text_index: int, line: int) -> tuple[str, str]:
    return f"line {line}", f"/i/INC-1?text={text_index + 1}&line={line}#T{text_index + 1}-L{line}"


def page_of(client: Client, incident: Incident) -> str:
    response = client.get(f"/i/INC-{incident.pk}")
    assert response.status_code == 200
    return response.content.decode()


def series(*values: float, name: str = "loss", **changes: Any) -> dict[str, Any]:
    points = [[number + 1, value] for number, value in enumerate(values)]
    return {
        "name": name, "unit": "", "rank": None, "text_index": 0, "note": "", "points": points
    } | changes  # fmt: skip


# ------------------------------------------------------------------------------------- stacks


def test_the_odd_process_stands_first_and_open(reader: Client, diagnosed: Diagnosed) -> None:
    incident = diagnosed(hang())
    page = page_of(reader, incident)
    section = page[page.index('id="stacks-title"') : page.index('id="log"')]
    first, rest = section.split('<li class="place">', maxsplit=1)
    assert '<li class="place odd">\n  <details open>' in first
    assert "save_checkpoint" in first
    assert "apart from the rest" in first
    assert "process 4105" in first
    assert "×7" in rest
    assert "processes 4100-4104, 4106, 4107" in rest
    # Where the dump stands in the text.
    [line] = re.findall(r'class="where" href="[^"]*#T1-L(\d+)"', first)
    assert hang().splitlines()[int(line) - 1] == 'Thread 4105 (idle): "MainThread"'


def test_own_frames_stand_out_and_library_frames_fold(reader: Client, diagnosed: Diagnosed) -> None:
    page = page_of(reader, diagnosed(hang()))
    rest = page[page.index("×7") : page.index('id="log"')]
    assert '<li class="library"><code>all_reduce</code>' in rest
    assert "<summary>3 library frames</summary>" in rest
    assert '<li class="own"><code>reduce_loss</code> <code class="at">metrics.py:22</code>' in rest
    assert "/workspace/&lt;b&gt;run&lt;/b&gt;/train.py:151" in rest
    assert "<b>run</b>" not in page


def test_many_places_are_folded_and_counted(reader: Client, diagnosed: Diagnosed) -> None:
    text = "".join(dump(5000 + n, [f"stage_{n} (stage_{n}.py:{n + 1})", *_OWN]) for n in range(20))
    page = page_of(reader, diagnosed(text))
    assert f"<summary>{20 - MAX_PLACES_OPEN} more places</summary>" in page
    # Where each stands alone nobody is the odd one, and the heading has told who is where.
    assert "apart from the rest" not in page
    section = page[page.index('id="stacks-title"') :]
    assert "16 more stand" not in section[: section.index('id="log"')]


def test_a_tree_is_cut_to_its_budget() -> None:
    threads = tuple(
        Thread(f"t{n}", (Frame("x" * 900 + f"/own{n}.py", n, f"own_{n}"),), n) for n in range(50)
    )
    stacks = []
    for pid in range(1, 40):
        # At a place of its own, so that each is a group with all those threads.
        main = Thread("MainThread", (Frame(f"part{pid}.py", 9, "main"),), 1)
        stacks.append(StackDump(pid, 1, 60, (main, *threads), rank=pid))
    tree = exhibits.collect([Evidence(stacks=stacks)]).stack_tree
    assert tree is not None

    def count(groups: list[dict[str, Any]]) -> int:
        return sum(1 + count(group["children"]) for group in groups)

    assert count(tree["groups"]) == exhibits.MAX_GROUPS
    assert len(tree["groups"]) == 39
    assert sum(group["left_out"] for group in tree["groups"]) > 0
    section = build_stacks(tree, link)
    assert section is not None
    frames = [f for place in section.places for run in place.runs for f in run.frames]
    assert max(len(f.place) for f in frames) <= exhibits.MAX_FRAME_CHARACTERS


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ([0, 1, 2, 3, 4, 5, 6, 8], "0-6, 8"),
        ([9, 10], "9, 10"),
        ([3], "3"),
        ([5, 5, 4, 3], "3-5"),
        ([], ""),
        (list(range(0, 60, 2)), ", ".join(str(n) for n in range(0, 24, 2)) + ", …"),
    ],
)
def test_numbers_are_told_as_ranges(numbers: list[int], words: str) -> None:
    assert ranges_in_words(numbers) == words


# ------------------------------------------------------------------------------------- charts


def test_a_diverging_loss_is_drawn_with_its_onset(reader: Client, diagnosed: Diagnosed) -> None:
    page = page_of(reader, diagnosed(diverging()))
    chart = page[page.index('<figure class="chart">') : page.index("</figure>")]
    assert "<b>Loss</b>" in chart
    assert "not a number from line 51 (step 500" in chart
    assert 'class="series onset"' in chart
    assert re.search(r'<a href="[^"]*#T1-L51">from line 51</a>', chart)
    assert re.search(r'<a href="[^"]*#T1-L1" title="line 1">2.5</a>', chart)
    # Drawn points lead to their lines.
    assert re.search(r'<a href="[^"]*#T1-L50"><title>1.52 on line 50</title>', chart)


def test_a_drawing_has_nothing_that_the_policy_refuses(
    reader: Client, diagnosed: Diagnosed
) -> None:
    page = page_of(reader, diagnosed(diverging()))
    drawing = page[page.index('<svg class="plot-area"') :].split("</svg>")[0]
    assert not re.search(r"<style|<script|style=|xlink|<desc|<!--", drawing)
    assert len(drawing) < 12_000


def test_nothing_to_draw_leaves_no_trace(reader: Client, diagnosed: Diagnosed) -> None:
    page = page_of(reader, diagnosed(HEALTHY))
    assert 'class="chart' not in page
    assert "stacks-title" not in page


def test_four_charts_at_most_and_the_telling_one_first() -> None:
    calm = [series(1, 2, 3, 4, name=f"part_{n}") for n in range(6)]
    told = series(1, 2, math.nan, name="zeta", note="NaN from line 3 on.")
    shown, left_out = build_charts([*calm, told], link)
    assert [chart.title for chart in shown] == ["Zeta", "Part 0", "Part 1", "Part 2"]
    assert left_out == 3


def test_ranks_of_one_series_share_a_chart() -> None:
    ranks = [series(1, 2, 3, 4, rank=rank) for rank in range(5)]
    ranks[4]["note"] = "NaN from line 2 on."
    [chart], left_out = build_charts(ranks, link)
    assert [row.name for row in chart.rows] == ["rank 4", "rank 0", "rank 1"]
    assert chart.has_legend
    assert left_out == 2


@pytest.mark.parametrize(
    "values",
    [
        (math.nan,) * 4,
        (math.inf, -math.inf, 1e308, -1e308),
        (5.0, 5.0, 5.0, 5.0),
        (0.0, 0.0, 0.0, 0.0),
        (1e-300, 1.0, 1e29, 3.0),
        (1e16, 1e16 + 2, 1e16, 1e16),
        (-1e-9, 1e-9, 0.0, 0.0),
        (65536.0, 1.0, 2.0, 4.0),
    ],
)
def test_any_numbers_make_a_chart(values: tuple[float, ...]) -> None:
    [chart], _ = build_charts([series(*values)], link)
    assert chart.drawing.startswith("<svg")
    assert "nan" not in re.sub(r"<title>.*?</title>", "", chart.drawing)


def test_a_label_of_a_drawing_is_escaped() -> None:
    hostile = series(1, 2, 3, 4, name="<script>alert(1)</script>")
    [chart], _ = build_charts([hostile], link)
    assert "<script" not in chart.drawing
    assert "&lt;script" in chart.drawing.lower()


def test_points_are_thinned_to_what_a_small_chart_shows() -> None:
    values = [1.0] * 5_000
    values[1234], values[3000], values[4000] = 99.0, -7.0, math.nan
    evidence = Evidence(points=[Point("loss", n + 1, v) for n, v in enumerate(values)])
    [found] = exhibits.collect([evidence]).series
    assert len(found["points"]) <= MAX_POINTS
    assert found["points"][0] == [1, 1.0]
    assert found["points"][-1] == [5_000, 1.0]
    assert [1235, 99.0] in found["points"]
    assert [3001, -7.0] in found["points"]
    assert [4001, None] in found["points"]


def test_numbers_are_told_short() -> None:
    told = [number_in_words(n) for n in (65536, 1621.001, 0.02134, 2.5, 1.2e9, math.nan)]
    assert told == ["65,536", "1,621", "0.02134", "2.5", "1.2e+09", "nan"]


# ------------------------------------------------------------------------------------- storage


def test_exhibits_are_kept_with_the_diagnosis_and_go_with_its_texts(
    reader: Client, diagnosed: Diagnosed
) -> None:
    incident = diagnosed(hang() + diverging())
    kept = incident.current_diagnosis
    assert kept is not None
    assert kept.stack_tree["groups"]
    assert kept.series[0]["name"] == "loss"
    reader.post(f"/i/INC-{incident.pk}/destroy")
    assert not Diagnosis.objects.filter(incident=incident).exists()


def test_a_fault_in_a_picture_costs_the_picture_alone(
    reader: Client, diagnosed: Diagnosed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(evidences: Any) -> None:
        raise ValueError("no tree today")

    monkeypatch.setattr(exhibits, "_small_tree", fail)
    incident = diagnosed(hang())
    assert incident.state == Incident.State.DIAGNOSED
    assert "stacks-title" not in page_of(reader, incident)


def test_lists_of_incidents_do_not_load_exhibits(reader: Client, diagnosed: Diagnosed) -> None:
    diagnosed(hang())
    found = Incident.objects.with_answer().get()
    assert found.current_diagnosis.get_deferred_fields() == {"stack_tree", "series"}
