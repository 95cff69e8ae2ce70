"""Questions that no pattern can answer, asked of whole texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from triage.engine import Evidence
from triage.engine.facts import QUESTIONS, Fact, Facts

Scan = Callable[..., Evidence]


def ask_fact(name: str, *evidences: Evidence) -> Fact | None:
    return Facts(evidences).get(name)


def watchdog(rank: int, op: str = "ALLREDUCE", seq: int = 41, numel: int = 1024) -> str:
    return (
        f"[rank{rank}]:[E1123 04:11:59.12345 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog "
        f"caught collective operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, "
        f"NumelIn={numel}, NumelOut={numel}, Timeout(ms)=600000) ran for 600029 milliseconds "
        "before timing out.\n"
    )


def test_an_unknown_question_is_answered_with_no(scan_text: Scan) -> None:
    assert ask_fact("the_moon_is_full", scan_text("x")) is None


def test_no_question_holds_for_a_healthy_run(scan_text: Scan) -> None:
    text = "".join(
        f"[rank{r}]: step {n}/100 loss {2.5 - n / 100:.2f} mem 512 MB scale 65536\n"
        for n in range(1, 100)
        for r in range(2)
    )
    evidence = scan_text(text)
    assert {name for name in QUESTIONS if ask_fact(name, evidence)} == set()


# ------------------------------------------------------------------------------ collectives


def test_equal_collectives_do_not_differ(scan_text: Scan) -> None:
    evidence = scan_text(watchdog(0) + watchdog(1) + watchdog(2))
    assert ask_fact("collective_differs_between_ranks", evidence) is None


@pytest.mark.parametrize(
    "odd", [{"op": "BROADCAST"}, {"numel": 2048}, {"op": "BROADCAST", "seq": 42}]
)
def test_the_odd_rank_is_named(odd: dict[str, object], scan_text: Scan) -> None:
    text = watchdog(0) + watchdog(1) + watchdog(2, **odd) + watchdog(3)  # type: ignore[arg-type]
    fact = ask_fact("collective_differs_between_ranks", scan_text(text))
    assert fact is not None
    assert fact.rank == 2
    assert "rank 2" in fact.because
    assert {line.line for line in fact.evidence} >= {3}


def test_several_numbers_on_one_rank_are_several_groups(scan_text: Scan) -> None:
    text = watchdog(0, seq=7) + watchdog(0, seq=9) + watchdog(1, "BROADCAST", 7)
    assert ask_fact("collective_differs_between_ranks", scan_text(text)) is None


def test_texts_of_several_ranks_are_compared(scan_text: Scan) -> None:
    texts = [scan_text(watchdog(rank)) for rank in (0, 1)] + [scan_text(watchdog(2, "BROADCAST"))]
    fact = ask_fact("collective_differs_between_ranks", *texts)
    assert fact is not None
    assert fact.rank == 2
    assert {line.text_index for line in fact.evidence} >= {2}


def test_the_rank_that_only_saw_the_signal_is_missing(scan_text: Scan) -> None:
    seen = (
        "[rank2]:[E1123 04:12:00.1 ProcessGroupNCCL.cpp:2] [PG 0 Rank 2] Observed flight recorder "
        "dump signal from another rank via TCPStore.\n"
    )
    fact = ask_fact("rank_missing_from_collective", scan_text(watchdog(0) + watchdog(1) + seen))
    assert fact is not None
    assert fact.rank == 2


def test_a_rank_that_died_is_not_missing_for_its_own_reasons(scan_text: Scan) -> None:
    text = (
        '[rank2]: Traceback (most recent call last):\n[rank2]:   File "t.py", line 3, in <module>\n'
        "[rank2]: KeyError: 'lr'\n"
        "RuntimeError: Rank 0 successfully reached monitoredBarrier, but received errors while "
        "waiting for send/recv from rank 2.\n"
    )
    assert ask_fact("rank_missing_from_collective", scan_text(text)) is None


def state(rank: int, last: int, work: int | None = None, group: str = "0(default_pg)") -> str:
    head = f"[rank{rank}]:[E1123 04:12:00.1 ProcessGroupNCCL.cpp:2] [PG ID 0 PG GUID {group} Rank"
    if work is not None:
        return (
            f"{head} {rank}]  failure detected by watchdog at work sequence id: {work} PG status: "
            f"last enqueued work: {last}, last completed work: {work - 1}\n"
        )
    return (
        f"{head} {rank}] Received a dump signal due to a collective timeout from  rank 0 and we "
        f"will try our best to dump the debug info. Last enqueued NCCL work: {last}, last "
        f"completed NCCL work: {last}.\n"
    )


def test_the_rank_whose_last_call_stands_before_that_of_the_others(scan_text: Scan) -> None:
    text = watchdog(0) + state(0, 42, 41) + watchdog(1) + state(1, 42, 41)

    fact = ask_fact("rank_missing_from_collective", scan_text(text + state(2, 40)))
    assert fact is not None
    assert fact.rank == 2
    assert "rank 2 had enqueued only up to 40 when 2 ranks timed out in ALLREDUCE 41" in (
        fact.because
    )
    assert fact.values["source"] == "the ranks' watchdog lines"
    # It had enqueued the call, too; or the number counts the calls of another group.
    assert ask_fact("rank_missing_from_collective", scan_text(text + state(2, 41))) is None
    other = text.replace("0(default_pg)", "7(tp)")
    assert ask_fact("rank_missing_from_collective", scan_text(other + state(2, 40))) is None


def test_timeouts_of_two_groups_are_not_set_against_each_other(scan_text: Scan) -> None:
    one = watchdog(0) + state(0, 42, 41, "5(tp)")
    other = watchdog(4, "_ALLGATHER_BASE", 900) + state(4, 901, 900, "9(dp)")
    assert ask_fact("collective_differs_between_ranks", scan_text(one + other)) is None
    same = other.replace("9(dp)", "5(tp)")
    assert ask_fact("collective_differs_between_ranks", scan_text(one + same)) is not None


@pytest.mark.parametrize("op", ["ALLTOALL_BASE", "GATHER", "SCATTER"])
def test_sizes_that_are_a_ranks_own_prove_nothing(op: str, scan_text: Scan) -> None:
    text = watchdog(0, op) + watchdog(1, op) + watchdog(2, op, numel=77)
    assert ask_fact("collective_differs_between_ranks", scan_text(text)) is None


def test_shapes_of_old_watchdogs_are_compared(scan_text: Scan) -> None:
    line = (
        "[E ProcessGroupNCCL.cpp:821] [Rank {}] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=9, OpType=ALLREDUCE, TensorShape=[{}], Timeout(ms)=60000) ran for 60001 "
        "milliseconds before timing out.\n"
    )
    sizes = ["64", "64", "32"]
    text = "".join(line.format(rank, size) for rank, size in enumerate(sizes))
    fact = ask_fact("collective_differs_between_ranks", scan_text(text))
    assert fact is not None
    assert (fact.rank, "[32]" in fact.because) == (2, True)


def logged(rank: int, op: str, number: int, numel: int = 8) -> str:
    return (
        f"n:{rank}:9 [0] NCCL INFO {op}: opCount {number:x} sendbuff 0x7f recvbuff 0x7f acc (nil) "
        f"count {numel} datatype 7 op 0 root 0 comm 0x5{rank} [nranks=3] stream 0x1\n"
    )


@pytest.mark.parametrize(
    ("odd", "holds"),
    [(("Broadcast", 8), True), (("AllReduce", 9), True), (("AllReduce", 8), False)],
)
def test_calls_that_nccl_logged(odd: tuple[str, int], *, holds: bool, scan_text: Scan) -> None:
    text = "".join(
        f"n:{rank}:9 [0] NCCL INFO ncclCommInitRank comm 0x5{rank} rank {rank} nranks 3 cudaDev 0 "
        "nvmlDev 0 busId 1 commId 0xfe - Init COMPLETE\n"
        for rank in range(3)
    )
    text += "".join(logged(rank, "AllGather", 1) for rank in range(3))
    text += logged(0, "AllReduce", 2) + logged(1, odd[0], 2, odd[1]) + logged(2, "AllReduce", 2)

    fact = ask_fact("collective_differs_between_ranks", scan_text(text))

    assert (fact is not None) is holds
    if fact is not None:
        assert (fact.rank, fact.values["source"]) == (1, "NCCL's log of calls")


def test_a_barrier_against_another_call(scan_text: Scan) -> None:
    text = (
        "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running "
        "collective: CollectiveFingerPrint(SequenceNumber=9, OpType=ALLREDUCE, TensorShape=[8]), "
        "but Rank 3 is running collective: CollectiveFingerPrint(SequenceNumber=9, OpType=BARRIER)."
    )
    fact = ask_fact("collective_differs_between_ranks", scan_text(text))
    assert fact is not None
    assert fact.rank == 3


def came(ranks: Sequence[int], size: int, phase: str = "START") -> str:
    return "".join(
        f"n:{rank}:9 [0] NCCL INFO ncclCommInitRank comm 0x5{rank} rank {rank} nranks {size} "
        f"cudaDev 0 nvmlDev 0 busId 1 commId 0xfe - Init {phase}\n"
        for rank in ranks
    )


@pytest.mark.parametrize(
    ("text", "rank"),
    [
        (came([0, 1, 3], 4), 2),
        (came([0, 1, 2, 3], 4), None),
        (came([0, 1, 3], 4) + came([0], 4, "COMPLETE"), None),
        # The log of one of two nodes, and that of one rank.
        (came([0, 1, 2, 3], 8), None),
        (came([0], 2), None),
        ("".join(f"GLOBAL_RANK: {rank}, MEMBER: {rank + 1}/4\n" for rank in (0, 2, 3)), 1),
    ],
)
def test_the_rank_that_never_came(text: str, rank: int | None, scan_text: Scan) -> None:
    fact = ask_fact("rank_never_came_to_the_group", scan_text(text))
    assert (None if fact is None else fact.rank) == rank


def test_ranks_that_print_the_same_samples(scan_text: Scan) -> None:
    line = "[rank{}] sample ids: [{}]\n"
    same = "".join(line.format(rank, "17, 4, 90") for rank in (0, 1))
    assert ask_fact("ranks_read_the_same_samples", scan_text(same)) is not None
    other = line.format(0, "17, 4, 90") + line.format(1, "18, 5, 91")
    assert ask_fact("ranks_read_the_same_samples", scan_text(other)) is None
    assert ask_fact("ranks_read_the_same_samples", scan_text(same[: len(same) // 2])) is None


@pytest.mark.parametrize(
    ("first", "second", "holds"),
    [
        ("epoch 0 indices [17, 4, 90]", "epoch 1 indices [17, 4, 90]", True),
        ("epoch 0 indices [17, 4, 90]", "epoch 1 indices [4, 90, 17]", False),
        ("epoch 0 indices [17, 4, 90]", "epoch 0 indices [17, 4, 90]", False),
        ("epoch 0 indices [0, 1, 2]", "epoch 1 indices [0, 1, 2]", False),
        ("epoch 0 val indices [17, 4, 90]", "epoch 1 val indices [17, 4, 90]", False),
    ],
)
def test_epochs_that_repeat_one_order(
    first: str, second: str, *, holds: bool, scan_text: Scan
) -> None:
    fact = ask_fact("epochs_repeat_one_order", scan_text(f"{first}\n{second}\n"))
    assert (fact is not None) is holds


@pytest.mark.parametrize(
    ("totals", "odd"), [((500, 500, 503), 2), ((500, 503, 503), 0), ((500, 503), 0)]
)
def test_loops_of_unlike_length(totals: tuple[int, ...], odd: int, scan_text: Scan) -> None:
    text = "".join(
        f"[rank{rank}]: train step {step}/{total} loss 1.0\n"
        for step in (499, 500)
        for rank, total in enumerate(totals)
    )
    late = totals.index(max(totals))
    fact = ask_fact("ranks_stopped_at_different_batches", scan_text(text + watchdog(late)))
    assert fact is not None
    assert fact.rank == odd


def test_a_bar_without_a_total(scan_text: Scan) -> None:
    bar = "Generating train split: 4990000 examples [9:51, 8440.11 examples/s]\n"
    fact = ask_fact("rank_busy_until_the_timeout", scan_text(bar + watchdog(1) + watchdog(2)))
    assert fact is not None
    assert (fact.rank, "Generating train split" in fact.because) == (0, True)


def test_the_others_had_ended_their_epoch(scan_text: Scan) -> None:
    ended = "[rank{}]: epoch 3 finished, 81 batches\n"
    text = ended.format(0) + ended.format(1) + watchdog(2)
    fact = ask_fact("ranks_stopped_at_different_batches", scan_text(text))
    assert fact is not None
    assert fact.rank == 2
    assert "ranks 0 and 1 had ended the epoch" in fact.because
    metric = ended.format(0) + ended.format(1) + watchdog(2, numel=1)
    assert ask_fact("ranks_stopped_at_different_batches", scan_text(metric)) is None


def test_work_that_was_done_too_late(scan_text: Scan) -> None:
    saved = "[rank0]: Saved checkpoint to /data/run4/step_90.pt\n"
    fact = ask_fact("rank_busy_until_the_timeout", scan_text(watchdog(1) + watchdog(2) + saved))
    assert fact is not None
    assert (fact.rank, "Saved checkpoint" in fact.because) == (0, True)
    before = saved + watchdog(1) + watchdog(2)
    assert ask_fact("rank_busy_until_the_timeout", scan_text(before)) is None
    rescued = watchdog(1) + watchdog(2) + saved.replace("Saved", "Saved emergency")
    assert ask_fact("rank_busy_until_the_timeout", scan_text(rescued)) is None


BAR = "Tokenizing:  81%|########  | 8123/10000 [{elapsed}<01:00,  4.48it/s]"
BARRIER = "\n[rank1]: RuntimeError: Ranks 0 failed to pass monitoredBarrier in 1800000 ms\n"


def test_a_bar_as_long_as_the_timeout_names_the_busy_rank(scan_text: Scan) -> None:
    text = BAR.format(elapsed="30:02") + BARRIER
    fact = ask_fact("rank_busy_until_the_timeout", scan_text(text))
    assert fact is not None
    assert "Tokenizing" in fact.because
    assert "8123 of 10000" in fact.because


@pytest.mark.parametrize("between", ["", "Killed"])
def test_a_short_or_killed_bar_was_not_busy(between: str, scan_text: Scan) -> None:
    elapsed = "30:02" if between else "00:02"
    text = BAR.format(elapsed=elapsed) + between + BARRIER
    assert ask_fact("rank_busy_until_the_timeout", scan_text(text)) is None


# -------------------------------------------------------------------------------- stack dumps


def process(pid: int, *frames: str, name: str = "MainThread", state: str = "idle") -> str:
    lines = "".join(f"    {frame}\n" for frame in frames)
    return f'Process {pid}: python train.py\nThread {pid} ({state}): "{name}"\n{lines}\n'


ALL_REDUCE = "all_reduce (torch/distributed/distributed_c10d.py:2805)"
BARRIER_FRAME = "barrier (torch/distributed/distributed_c10d.py:4627)"
WAITS = (
    "poll (multiprocessing/connection.py:440)",
    "_try_get_data (torch/utils/data/dataloader.py:1291)",
    "_get_data (torch/utils/data/dataloader.py:1464)",
    "main (train.py:103)",
)
WORKER = (
    "fetch (torch/utils/data/_utils/fetch.py:54)",
    "_worker_loop (torch/utils/data/_utils/worker.py:374)",
)


def test_a_worker_on_a_lock_holds_up_the_main_thread(scan_text: Scan) -> None:
    stuck = process(2, "acquire (threading.py:1)", "__getitem__ (data.py:32)", *WORKER)
    fact = ask_fact("dataloader_main_waits_for_stuck_worker", scan_text(process(1, *WAITS) + stuck))
    assert fact is not None
    assert "data.py:32" in fact.because


def test_a_busy_worker_is_only_slow(scan_text: Scan) -> None:
    busy = process(2, "decode (PIL/Image.py:1)", *WORKER, state="active")
    text = process(1, *WAITS) + busy
    assert ask_fact("dataloader_main_waits_for_stuck_worker", scan_text(text)) is None


def test_ranks_in_different_collectives(scan_text: Scan) -> None:
    text = process(1, BARRIER_FRAME, "save (train.py:1)") + process(2, ALL_REDUCE, "f (train.py:2)")
    fact = ask_fact("ranks_wait_in_different_collectives", scan_text(text))
    assert fact is not None
    assert "barrier" in fact.because
    assert "all_reduce" in fact.because
    same = process(1, ALL_REDUCE, "f (train.py:2)") + process(2, ALL_REDUCE, "f (train.py:2)")
    assert ask_fact("ranks_wait_in_different_collectives", scan_text(same)) is None


def test_a_process_that_saves_while_the_others_wait(scan_text: Scan) -> None:
    text = (
        process(1, "write (/usr/lib/python3.11/zipfile.py:1)", "save_checkpoint (train.py:9)")
        + process(2, ALL_REDUCE, "step (train.py:2)")
        + process(3, ALL_REDUCE, "step (train.py:2)")
    )
    fact = ask_fact("rank_outside_the_collective_others_wait_in", scan_text(text))
    assert fact is not None
    assert "save_checkpoint" in fact.because


def test_counts_of_batches_differ_only_once_the_run_has_stopped(scan_text: Scan) -> None:
    counts = "[rank0]: finished 12 batches\n[rank1]: finished 9 batches\n"
    assert ask_fact("ranks_stopped_at_different_batches", scan_text(counts)) is None
    fact = ask_fact("ranks_stopped_at_different_batches", scan_text(counts + watchdog(0)))
    assert fact is not None
    assert fact.rank == 1
    assert "9 batches" in fact.because


# ------------------------------------------------------------------------------------ numbers

OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {request}. GPU 0 has a total "
    "capacity of 79.15 GiB of which {free} is free. Of the allocated memory 60.00 GiB is allocated "
    "by PyTorch, and {unused} is reserved by PyTorch but unallocated."
)


@pytest.mark.parametrize(
    ("request_", "free", "unused", "holds"),
    [
        ("2.00 GiB", "1.00 GiB", "9.00 GiB", True),
        ("2.00 GiB", "1.00 GiB", "300.00 MiB", False),
        ("2.00 GiB", "8.00 GiB", "300.00 MiB", True),
    ],
)
def test_reserved_against_allocated(
    request_: str, free: str, unused: str, *, holds: bool, scan_text: Scan
) -> None:
    text = OOM.format(request=request_, free=free, unused=unused)
    fact = ask_fact("oom_reserved_memory_would_have_sufficed", scan_text(text))
    assert (fact is not None) is holds


@pytest.mark.parametrize(
    ("name", "line", "rising", "steady"),
    [
        ("memory_rises_every_step", "step {n} memory_allocated: {value} MB", 100, 0),
        ("host_memory_rises", "step {n} rss: {value} MB", 100, 0),
    ],
)
def test_memory_that_only_rises(
    name: str, line: str, rising: int, steady: int, scan_text: Scan
) -> None:
    def text(slope: int) -> str:
        return "\n".join(line.format(n=n, value=500 + slope * n) for n in range(1, 9))

    assert ask_fact(name, scan_text(text(rising))) is not None
    assert ask_fact(name, scan_text(text(steady))) is None


def skips(scales: list[float]) -> str:
    return "".join(
        f"Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to {s}\n"
        for s in scales
    )


def test_a_scale_that_falls_to_nothing_against_a_few_skips(scan_text: Scan) -> None:
    falling = skips([2.0**n for n in range(15, 1, -1)])
    fact = ask_fact("loss_scale_keeps_falling", scan_text(falling))
    assert fact is not None
    assert "32768" in fact.because
    assert ask_fact("loss_scale_keeps_falling", scan_text(skips([32768.0, 16384.0]))) is None


def test_a_loss_that_stays_nan_against_one_bad_step(scan_text: Scan) -> None:
    stays = "step 1 loss 2.0\n" + "".join(f"step {n} loss nan\n" for n in range(2, 6))
    fact = ask_fact("loss_is_nan", scan_text(stays))
    assert fact is not None
    assert "from line 2 (step 2) on; the last finite one was 2, on line 1" in fact.because
    once = "step 1 loss 2.0\nstep 2 loss nan\nstep 3 loss 2.0\n"
    assert ask_fact("loss_is_nan", scan_text(once)) is None
    validation = "step 1 loss 2.0\n" + "val_loss: nan\n" * 4
    assert ask_fact("loss_is_nan", scan_text(validation)) is None


def test_live_autograd_nodes_grow(scan_text: Scan) -> None:
    row = "  <class 'torch.autograd.function.AddBackward0'> |  {} |  1.2 KB\n"
    grows = scan_text("".join(row.format(n) for n in (10, 200, 900)))
    level = scan_text("".join(row.format(n) for n in (10, 10, 10)))
    assert ask_fact("autograd_nodes_grow", grows) is not None
    assert ask_fact("autograd_nodes_grow", level) is None


# ------------------------------------------------------------------------------ series


def test_nan_tells_its_step_and_what_came_before(scan_text: Scan) -> None:
    rows = [f"step {n} loss 2.{n} grad_norm 0.{n} loss_scale 1024" for n in range(1, 10)]
    rows += ["step 10 loss 95.0 grad_norm 8000.0 loss_scale 512"]
    rows += [f"step {n} loss nan grad_norm nan loss_scale 512" for n in range(11, 15)]
    fact = ask_fact("loss_is_nan", scan_text("\n".join(rows)))
    assert fact is not None
    assert fact.because.startswith("the loss is not a number from line 11 (step 11) on")
    assert [d.split(" a usual")[0] for d in fact.details[:2]] == [
        "the loss had risen from",
        "the gradient norm rose from",
    ]
    assert fact.details[2] == "the loss scale was 512 then"


@pytest.mark.parametrize(
    "norms",
    [
        # Large, but the run goes on; the skipped steps of a scaler that settles; no rise at all.
        ["1.0"] * 8 + ["5000"] + ["1.0"] * 4,
        ["1.0"] * 4 + ["inf"] + ["1.1"] * 8,
        ["1.0"] * 8 + ["nan"] * 4,
    ],
)
def test_a_gradient_norm_that_does_not_explode(norms: list[str], scan_text: Scan) -> None:
    text = "".join(f"step {n} grad_norm {norm}\n" for n, norm in enumerate(norms))
    assert ask_fact("gradient_norm_explodes", scan_text(text)) is None


@pytest.mark.parametrize(
    ("times", "holds"),
    [
        ([0.4 + 0.02 * n for n in range(40)], True),
        ([9.0] + [0.4] * 40, False),
        ([0.4, 0.5] * 20, False),
        ([0.4] * 20 + [0.9] * 3 + [0.4] * 20, False),
        ([0.4 + 0.3 * n for n in range(8)], False),
    ],
)
def test_steps_that_take_longer_and_longer(
    times: list[float], holds: bool, scan_text: Scan
) -> None:
    text = "".join(f"step {n} step_time: {seconds:.2f} s\n" for n, seconds in enumerate(times))
    fact = ask_fact("step_time_grows", scan_text(text))
    assert (fact is not None) == holds
    if fact is not None:
        assert fact.because == "a step took 0.49 s at first and 1.09 s in the end"


@pytest.mark.parametrize(("skipped", "holds"), [((30, 60, 90), True), ((2, 3, 3), False)])
def test_the_skip_rate_that_deepspeed_prints(
    skipped: tuple[int, ...], holds: bool, scan_text: Scan
) -> None:
    text = "".join(
        f"[INFO] [logging.py:96:log_dist] [Rank 0] step={40 * n}, skipped={count}, lr=[0.1]\n"
        for n, count in enumerate(skipped, 1)
    )
    fact = ask_fact("loss_scale_keeps_falling", scan_text(text))
    assert (fact is not None) == holds
    if fact is not None:
        assert fact.because == "90 of 120 steps were skipped"


def test_skips_are_set_against_the_steps(scan_text: Scan) -> None:
    rows = []
    for n in range(1, 11):
        rows.append(f"step {n} loss 2.0")
        if n > 4:
            scale = 2048 / 2**n
            rows.append(f"Gradient overflow.  Skipping step, reducing loss scale to {scale}")
    fact = ask_fact("loss_scale_keeps_falling", scan_text("\n".join(rows)))
    assert fact is not None
    assert fact.details == ("6 of 10 steps were skipped (60%)",)
