"""Numbers per step: progress, loss, loss scale and memory, of plain prints and trainers."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from triage.engine import Evidence, Limits

Scan = Callable[..., Evidence]


def values(evidence: Evidence, series: str) -> list[float]:
    return [point.value for point in evidence.points if point.series == series]


@pytest.mark.parametrize(
    ("text", "series", "value"),
    [
        ("step 10 loss 2.5 lr 1e-4", "loss", 2.5),
        ("{'loss': 2.5, 'epoch': 0.1}", "loss", 2.5),
        ("Epoch 1: train_loss=2.5e-3", "loss", 2.5e-3),
        ("loss = tensor(2.5, device='cuda:0')", "loss", 2.5),
        ("val_loss: 2.5", "val_loss", 2.5),
        (
            "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 1024.0",
            "loss_scale",
            1024.0,
        ),
        ("[2024-05-01 10:00:00] rss: 2 GB", "host_memory", 2048.0),
        ("step 3 memory_allocated: 512 MB", "gpu_memory", 512.0),
    ],
)
def test_a_number_finds_its_series(text: str, series: str, value: float, scan_text: Scan) -> None:
    assert values(scan_text(text), series) == [pytest.approx(value)]


def test_nan_and_infinity_are_numbers_of_a_loss(scan_text: Scan) -> None:
    found = values(scan_text("step 1 loss nan\nstep 2 loss inf\n"), "loss")
    assert math.isnan(found[0])
    assert math.isinf(found[1])


@pytest.mark.parametrize(
    "text",
    ["the loss is great", "loss_fn=CrossEntropyLoss()", "lossless codec 3", "no loss of data"],
)
def test_words_about_loss_are_no_numbers(text: str, scan_text: Scan) -> None:
    assert values(scan_text(text), "loss") == []


@pytest.mark.parametrize(
    ("text", "done", "total"),
    [
        ("step 40/100 loss 2", 40, 100),
        ("iteration 7 of 9", 7, 9),
        ("Epoch [3/10]", 3, 10),
        ("global_step=120", 120, None),
    ],
)
def test_counters(text: str, done: int, total: int | None, scan_text: Scan) -> None:
    (progress,) = scan_text(text).progress
    assert (progress.done, progress.total) == (done, total)


def test_an_epoch_and_its_step_make_one_rising_counter(scan_text: Scan) -> None:
    text = "Epoch 1 step 8\nEpoch 1 step 9\nEpoch 2 step 0\n"
    done = [p.done for p in scan_text(text).progress]
    assert done == sorted(done)
    assert len(set(done)) == 3


def test_an_error_that_names_a_step_is_no_progress(scan_text: Scan) -> None:
    assert scan_text("[E a.cpp:1] failed at step 12\nRuntimeError: step 13 broke\n").progress == []


def test_batches_that_ranks_finished(scan_text: Scan) -> None:
    text = "[rank0]: finished 12 batches\n[rank1]: finished 9 batches\n"
    assert scan_text(text).batches == {"0": 12, "1": 9}


def test_samples_are_bounded_and_keep_both_ends(scan_text: Scan) -> None:
    text = "".join(f"step {n} loss {n / 8}\n" for n in range(1, 6_001))
    evidence = scan_text(text, limits=Limits(max_points=200, max_progress=200))
    found = values(evidence, "loss")
    assert len(found) <= 200
    assert (found[0], found[-1]) == (0.125, 750.0)
    done = [p.done for p in evidence.progress]
    assert len(done) <= 200
    assert (done[0], done[-1]) == (1, 6_000)
    assert done == sorted(done)
