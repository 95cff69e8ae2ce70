"""Numbers per step: progress, loss, loss scale and memory, of plain prints and trainers."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from kb.catalog import Catalog
from triage.engine import Evidence, Limits, scan

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


MEGATRON = (
    " iteration     1200/  500000 | consumed samples: 614400 | elapsed time per iteration (ms): "
    "812.3 | learning rate: 1.500E-04 | global batch size:   512 | lm loss: 2.345678E+00 | "
    "loss scale: 65536.0 | grad norm: 0.912 | number of skipped iterations:   0 |"
)
MMENGINE = (
    "2024/05/01 10:00:00 - mmengine - INFO - Epoch(train)  [1][650/742]  lr: 5.0000e-05  eta: "
    "2:15:01  time: 0.3960  data_time: 0.1590  memory: 4127  grad_norm: 3.5  loss: 0.7230  "
    "loss_cls: 0.4120  loss_bbox: 0.3110"
)
MMDET = (
    "2024-05-01 10:00:00,678 - mmdet - INFO - Epoch [1][650/742] lr: 5.000e-05, eta: 2:15:01, "
    "time: 0.396, data_time: 0.159, memory: 4127, loss_cls: 0.412, loss_bbox: 0.311, loss: 0.723"
)
HF = "{'loss': 1.2345, 'grad_norm': 0.8812, 'learning_rate': 4.2e-05, 'epoch': 0.63}"
HF_EVAL = "{'eval_loss': 1.5, 'eval_runtime': 12.4, 'eval_samples_per_second': 80.1, 'epoch': 1.0}"
FAIRSEQ = (
    "2024-05-01 10:00:00 | INFO | train_inner | epoch 001:    100 / 1000 loss=3.2, ppl=9.19, "
    "wps=1234.5, num_updates=100, lr=0.0005, gnorm=1.25, loss_scale=128, train_wall=12"
)
FAIRSEQ_OLD = "| epoch 001 | loss 3.2 | nll_loss 2.9 | gnorm 1.25 | lr 0.0005 | loss_scale 128 |"
DEEPSPEED = (
    "[2024-05-01 10:00:00,678] [INFO] [logging.py:96:log_dist] [Rank 0] step=1200, skipped=3, "
    "lr=[0.0001], mom=[(0.9, 0.95)]"
)
DEEPSPEED_TIMERS = (
    "[2024-05-01 10:00:00,678] [INFO] [logging.py:96:log_dist] [Rank 0] time (ms) | "
    "fwd_microstep: 100.50 | bwd_microstep: 200.25 | bwd_inner_microstep: 190.0 | "
    "step_microstep: 99.25"
)
LIGHTNING = "Epoch 4:  37%|###7      | 371/1002 [02:04<03:31,  2.50it/s, loss=1.873, v_num=12]"
TQDM = "train:  10%|#         | 20/200 [00:40<05:59,  2.00s/it, loss=0.5]"
NNUNET = "2024-05-01 10:00:00.1: train_loss -0.4512\n2024-05-01 10:00:00.1: Epoch time: 123.4 s"
ULTRALYTICS = "      1/100      5.1G        nan        nan        nan         12        640"


@pytest.mark.parametrize(
    ("text", "series", "expected"),
    [
        (MEGATRON, "loss", 2.345678),
        (MEGATRON, "loss_scale", 65536.0),
        (MEGATRON, "grad_norm", 0.912),
        (MEGATRON, "learning_rate", 1.5e-4),
        (MEGATRON, "step_time", 0.8123),
        (MMENGINE, "loss", 0.723),
        (MMENGINE, "grad_norm", 3.5),
        (MMENGINE, "step_time", 0.396),
        (MMENGINE, "gpu_memory", 4127.0),
        (MMDET, "loss", 0.723),
        (MMDET, "learning_rate", 5e-5),
        (HF, "loss", 1.2345),
        (HF, "grad_norm", 0.8812),
        (HF, "learning_rate", 4.2e-5),
        (HF_EVAL, "val_loss", 1.5),
        (FAIRSEQ, "loss", 3.2),
        (FAIRSEQ, "loss_scale", 128.0),
        (FAIRSEQ, "grad_norm", 1.25),
        (FAIRSEQ_OLD, "loss", 3.2),
        (FAIRSEQ_OLD, "loss_scale", 128.0),
        (DEEPSPEED, "skipped_total", 3.0),
        (DEEPSPEED, "learning_rate", 1e-4),
        (DEEPSPEED_TIMERS, "step_time", 0.4),
        (LIGHTNING, "loss", 1.873),
        (LIGHTNING, "step_time", 0.4),
        (TQDM, "step_time", 2.0),
        (NNUNET, "loss", -0.4512),
        (NNUNET, "epoch_time", 123.4),
        (ULTRALYTICS, "loss", math.nan),
        ("iter 10: loss 4.2, time 123.45ms, mfu 2.3%", "step_time", 0.12345),
        ("step 5 train_loss: 2.0 val_loss: 3.0", "val_loss", 3.0),
        ("step 5 gradient norm = inf", "grad_norm", math.inf),
        ("step time: 1.5 s", "step_time", 1.5),
    ],
)
def test_lines_of_trainers(text: str, series: str, expected: float, scan_text: Scan) -> None:
    assert values(scan_text(text), series) == [pytest.approx(expected, nan_ok=True)]


@pytest.mark.parametrize(
    ("text", "series"),
    [
        (
            "1563/1563 [==============================] - 12s 8ms/step - loss: 1.2 - accuracy: 0.5",
            "",
        ),
        ("1563/1563 ━━━━━━━━━━━━━━━━━━━━ 12s 8ms/step - accuracy: 0.5 - loss: 1.2", ""),
        ("max_grad_norm: 1.0, clip_grad_norm=1.0, loss_weight: 2.0, init_scale_factor 5", ""),
        ("Loading checkpoint shards: 100%|####| 4/4 [00:07<00:00,  1.93s/it]", "step_time"),
        ("Validation DataLoader 0: 50%|##  | 4/8 [00:07<00:07,  1.93s/it]", "step_time"),
        ("total wall time 12.5 s, finished at time 10.2", "step_time"),
        ("fairseq loss_scale=128", "loss"),
        ("the norm of gradients is clipped at 1.0", "grad_norm"),
    ],
)
def test_what_only_looks_like_a_number_of_training(text: str, series: str, scan_text: Scan) -> None:
    found = scan_text(text).points
    assert [p for p in found if p.series == series or not series] == []


def test_a_point_knows_its_step(scan_text: Scan) -> None:
    evidence = scan_text(f"{MEGATRON}\nglobal_step=7 loss: 2.0\nEpoch 3 loss: 1.0\n{LIGHTNING}\n")
    assert [p.step for p in evidence.points if p.series == "loss"] == [1200, 7, None, 371]


class _Drip:
    """A stream that hands out a few bytes at a time."""

    def __init__(self, data: bytes, size: int) -> None:
        self._data, self._size, self._at = data, size, 0

    def read(self, size: int = -1, /) -> bytes:
        end = self._at + (self._size if size < 0 else min(size, self._size))
        piece, self._at = self._data[self._at : end], min(end, len(self._data))
        return piece


@pytest.mark.parametrize("size", [7, 1_000, 65_536])
def test_the_same_points_however_the_text_is_handed_out(
    size: int, scan_text: Scan, catalog: Catalog
) -> None:
    text = "".join(f"[rank{n % 3}]: step {n} loss {n % 17} lr 1e-{n % 5}\n" for n in range(12_000))
    limits = Limits(max_points=300)
    whole = scan_text(text, limits=limits)
    again = scan(_Drip(text.encode(), size), catalog=catalog, limits=limits)
    assert again.points == whole.points
    assert len(whole.points) <= 300


def test_extremes_and_the_onset_of_nan_survive(scan_text: Scan) -> None:
    def loss(n: int) -> str:
        return {3_000: "977", 3_100: "0.001", 4_000: "nan"}.get(n, "nan" if n > 4_500 else "2.5")

    text = "".join(f"step {n} loss {loss(n)}\n" for n in range(1, 5_001))
    evidence = scan_text(text, limits=Limits(max_points=120))
    lines = {p.line for p in evidence.points}
    assert {1, 3_000, 3_100, 3_999, 4_000, 4_500, 4_501, 5_000} <= lines
    assert len(evidence.points) <= 120
    assert evidence.point_counts == {"loss": 5_000}


def test_many_ranks_share_the_room(scan_text: Scan) -> None:
    text = "".join(f"[rank{r}]: step {n} loss {n}\n" for n in range(40) for r in range(200))
    evidence = scan_text(text, limits=Limits(max_points=800))
    assert len(evidence.points) <= 800
    assert len({p.rank for p in evidence.points}) == 50
