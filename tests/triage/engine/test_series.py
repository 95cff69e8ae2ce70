"""Series of an incident as a page draws them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import pytest

from triage.engine import Evidence
from triage.engine.evidence import Point
from triage.engine.facts import Fact, Facts
from triage.engine.series import MAX_POINTS, MAX_RANKS, MAX_SERIES, summaries

Scan = Callable[..., Evidence]

NUMERIC_FACTS = (
    "memory_rises_every_step", "host_memory_rises", "loss_scale_keeps_falling", "loss_is_nan",
    "gradient_norm_explodes", "step_time_grows",
)  # fmt: skip


def numeric_facts(evidence: Evidence) -> dict[str, Fact]:
    facts = Facts([evidence])
    return {name: fact for name in NUMERIC_FACTS if (fact := facts.get(name)) is not None}


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


def _lines(count: int, row: Callable[[int], str]) -> str:
    return "".join(row(n) + "\n" for n in range(1, count + 1))


def _megatron(n: int, scale: float, *, skipped: bool, loss: str = "") -> str:
    return (
        f" iteration {n:8d}/  500000 | elapsed time per iteration (ms): {9_000 if n < 2 else 812}.3"
        f" | learning rate: 1.500E-04 | {loss}loss scale: {scale:.1f} | grad norm: 0.912 | "
        f"number of skipped iterations: {int(skipped):3d} | number of nan iterations:   0 |"
    )


def _deepspeed(scale: int, rank: int = 0) -> str:
    return (
        "[2024-05-01 10:00:00,678] [INFO] [loss_scaler.py:190:update_scale] [deepspeed] OVERFLOW! "
        f"Rank {rank} Skipping step. Attempted loss scale: {scale}, "
        f"reducing to {max(scale // 2, 1)}"
    )


HEALTHY = {
    "the first steps are slow": _lines(
        60, lambda n: f"step {n} loss 2.5 step_time: {(9.1, 3.2, 1.4)[n - 1] if n < 4 else 0.51} s"
    ),
    "every twentieth step evaluates": _lines(
        100, lambda n: f"step {n} loss 2.5 step_time: {5.0 if n % 20 == 0 else 0.5} s"
    ),
    "a class without examples": _lines(
        20,
        lambda n: (
            f"Epoch {n}\ntrain_loss {-0.3 - n / 100:.4f}\nval_loss nan\n"
            f"Pseudo dice [np.float32(nan), np.float32(0.81)]\nEpoch time: 120.{n} s"
        ),
    ),
    "one batch of NaN": _lines(40, lambda n: f"step {n} loss {'nan' if n == 17 else 2.5}"),
    "validation alone is NaN": _lines(20, lambda n: f"step {n} loss 2.5\nTest: step {n} loss nan"),
    "a scale of 65536 settles": _lines(
        500, lambda n: f"step {n} loss 2.5 scale: {65536.0 if n < 30 or n > 300 else 32768.0}"
    ),
    "a scale of 2**32 settles, DeepSpeed": _lines(16, lambda n: _deepspeed(2 ** (33 - n)))
    + _lines(20, lambda n: f"steps: {20 + n} loss: 2.5 iter time (s): 0.812 samples/sec: 157.6"),
    "a scale of 2**32 settles, Megatron-LM": _lines(
        60,
        lambda n: _megatron(
            n, 2.0 ** max(33 - n, 17), skipped=n < 16, loss="lm loss: 9.1E+00 | " if n > 15 else ""
        ),
    ),
    "memory grows until the caches are full": _lines(
        40, lambda n: f"step {n} loss 2.5 mem: {4000 + 500 * min(n, 5)} MiB rss: {min(n, 6)} GB"
    ),
    "one peak of the norm": _lines(
        40, lambda n: f"step {n} loss 2.5 grad_norm: {30.0 if n == 20 else 1.0}"
    ),
}


@pytest.mark.parametrize("text", HEALTHY.values(), ids=HEALTHY.keys())
def test_a_healthy_series_shows_nothing(text: str, scan_text: Scan) -> None:
    evidence = scan_text(text)
    assert numeric_facts(evidence) == {}
    assert [s.note for s in summaries([evidence]) if s.note] == []


SICK = {
    "scale, Megatron-LM": (
        _lines(20, lambda n: _megatron(n, max(2.0 ** (17 - n), 1.0), skipped=True)),
        "loss_scale_keeps_falling",
        "20 steps skipped while the loss scale fell from 65536 to 1",
        None,
    ),
    "scale, DeepSpeed on four ranks": (
        _lines(18, lambda n: "\n".join(_deepspeed(max(2 ** (17 - n), 1), r) for r in range(4))),
        "loss_scale_keeps_falling",
        "18 steps skipped while the loss scale fell from 65536 to 1",
        0,
    ),
    "scale, a loop's own lines of four workers": (
        _lines(
            14,
            lambda n: "\n".join(
                f"worker-{r} | iter {n} total_loss=2.5 grad_scale={2.0 ** (17 - n):g}"
                for r in range(4)
            ),
        ),
        "loss_scale_keeps_falling",
        "the loss scale was halved 13 times in a row, from 65536 to 8",
        None,
    ),
    "NaN, progress bar": (
        _lines(
            40,
            lambda n: (
                f"Epoch 0: {n}%|##  | {n}/100 [00:{n:02d}<01:00, 2.50it/s, "
                f"loss={'nan' if n > 22 else '1.2'}]"
            ),
        ),
        "loss_is_nan",
        "the loss is not a number from line 23 (step 23) on",
        None,
    ),
    "NaN on one rank": (
        _lines(
            30,
            lambda n: "\n".join(
                f'[rank{r}]: {{"step": {n}, "loss": {"NaN" if r and n > 9 else 2.5}}}'
                for r in range(2)
            ),
        ),
        "loss_is_nan",
        "the loss is not a number from line 20 (step 10) on",
        1,
    ),
    "GPU memory": (
        _lines(12, lambda n: f"step: {n:2d}  loss:  2.5000  memory: {n + 10}.50GiB(47.50%)"),
        "memory_rises_every_step",
        "GPU memory rose from 11776 to 23040 MiB and never fell",
        None,
    ),
    "host memory": (
        _lines(8, lambda n: f"CPU Virtual Memory:  used = {20 + 8 * n}.5 GB, percent = {n}.1%"),
        "host_memory_rises",
        "host memory rose from 29184 to 86528 and never fell",
        None,
    ),
    "seconds a step": (
        _lines(
            60,
            lambda n: (
                f"train: {n}%|##  | {n}/100 [{n:02d}:00<01:00,  {0.5 + n / 20:.2f}s/it, loss=1.2]"
            ),
        ),
        "step_time_grows",
        "a step took 0.925 s at first and 3.17 s in the end",
        None,
    ),
}


@pytest.mark.parametrize(("text", "name", "because", "rank"), SICK.values(), ids=SICK.keys())
def test_a_sick_series_shows_its_fact(
    text: str, name: str, because: str, rank: int | None, *, scan_text: Scan
) -> None:
    (fact,) = numeric_facts(scan_text(text)).values()
    assert (fact.name, fact.rank) == (name, rank)
    assert fact.because.startswith(because)
