"""Several failures in one text: each has its own cause; a restarted job has not survived."""

from __future__ import annotations

from collections.abc import Callable

from triage.engine import Evidence, Verdict
from triage.engine.episodes import Course, split

Ask = Callable[..., Verdict]
Scan = Callable[..., Evidence]

KILLED = "[ 8123.441] Out of memory: Killed process 4242 (python) total-vm:99kB, anon-rss:88kB\n"
WORKER = "RuntimeError: DataLoader worker (pid 977) is killed by signal: Killed. \n"
SHM = "RuntimeError: unable to write to file </torch_77_12_3>: No space left on device (28)\n"
FULL = "OSError: [Errno 28] No space left on device: '/ckpt/step_100.pt'\n"
CORRUPT = "RuntimeError: PytorchStreamReader failed reading zip archive: invalid header\n"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total\n"
TIMEOUT = (
    "[rank0]:[E1130 {0}.123456 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective "
    "operation timeout: WorkNCCL(SeqNum=4411, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, "
    "Timeout(ms)=600000) ran for 600001 milliseconds before timing out.\n"
)
STAMPED_OOM = (
    "[rank3]:[E1130 {0}.123456 ProcessGroupNCCL.cpp:1182] [Rank 3] CUDA error: out of memory\n"
)


def filler(lines: int) -> str:
    """Lines that tell of nothing."""
    return "".join(f"read shard {n * 7919 % 1000} of the corpus\n" for n in range(lines))


def steps(first: int, last: int, rank: str = "") -> str:
    return "".join(f"{rank}step {n}/9000 loss 2.{n}\n" for n in range(first, last))


def roots(verdict: Verdict) -> list[str]:
    return [d.slug for d in verdict.diagnoses if d.role == "root" and d.confidence != "hint"]


def test_failures_far_apart_are_several_roots_in_order(ask: Ask) -> None:
    verdict = ask(FULL + filler(3_000) + CORRUPT + filler(3_000) + OOM)
    assert roots(verdict) == ["disk-full", "checkpoint-corrupt", "cuda-out-of-memory"]
    assert verdict.diagnoses[0].explains == ()


def test_failures_side_by_side_are_cause_and_consequence(ask: Ask) -> None:
    verdict = ask(FULL + filler(30) + CORRUPT)
    assert roots(verdict)[0] == "disk-full"
    assert verdict.diagnoses[0].explains == ("checkpoint-corrupt",)


def test_what_stands_elsewhere_guards_nothing(ask: Ask) -> None:
    assert "disk-full" not in roots(ask(SHM + FULL))
    assert roots(ask(SHM + filler(3_000) + FULL)) == ["dataloader-shm-bus-error", "disk-full"]


def test_the_same_cause_again_is_one_diagnosis_with_both_lines(ask: Ask) -> None:
    verdict = ask(FULL + filler(3_000) + OOM + filler(3_000) + FULL)
    assert roots(verdict) == ["disk-full", "cuda-out-of-memory"]
    assert [line.line for line in verdict.diagnoses[0].evidence] == [1, 6003]
    assert any("line 6003" in reason for reason in verdict.diagnoses[0].because)


def test_stamps_join_what_many_lines_part(scan_text: Scan) -> None:
    text = STAMPED_OOM.format("04:00:00") + filler(5_000) + TIMEOUT.format("04:10:02")
    assert len(split([scan_text(text)])) == 1
    late = STAMPED_OOM.format("04:00:00") + filler(5_000) + TIMEOUT.format("09:10:02")
    assert len(split([scan_text(late)])) == 2


def test_a_run_that_went_on_parts_what_stamps_join(scan_text: Scan) -> None:
    text = STAMPED_OOM.format("04:00:00") + steps(0, 400) + TIMEOUT.format("04:10:02")
    before, after = split([scan_text(text)])
    assert [len(part.collectives) for (part,) in (before, after)] == [0, 1]
    assert before[0].progress[-1] == after[0].progress[-1]


def test_what_stands_at_the_ends_of_the_texts_belongs_together(scan_text: Scan) -> None:
    long = scan_text(FULL + filler(3_000) + OOM, name="rank0")
    short = scan_text(WORKER, name="rank1")
    first, last = split([long, short])
    assert [bool(e.hits) for e in first] == [True, False]
    assert [bool(e.hits) for e in last] == [True, True]


def test_a_setting_at_the_start_counts_for_a_failure_far_away(ask: Ask) -> None:
    setting = "/opt/x.py:9: UserWarning: volatile was removed and now has no effect. Use no_grad\n"
    other = "OSError: [Errno 28] No space left on device: '/tmp/x'\n"
    verdict = ask(setting + other + filler(3_000) + OOM)
    assert "cuda-oom-graph-retention" in roots(verdict)


def test_a_restarted_process_has_not_survived(ask: Ask) -> None:
    ended = (
        "E1130 04:12:00.123456 140 torch/distributed/elastic/multiprocessing/api.py:869] failed "
        "(exitcode: 1) local_rank: 0 (pid: 4242) of binary: /usr/bin/python\n"
    )
    assert ask(steps(0, 9) + OOM + steps(9, 40)).kind == "clean"
    assert roots(ask(steps(0, 9) + OOM + ended + steps(9, 40)))[0] == "cuda-out-of-memory"


def test_a_killed_process_has_not_survived(ask: Ask) -> None:
    assert roots(ask(steps(0, 9) + KILLED + steps(9, 40))) == ["host-oom-killed"]


def test_numbers_in_no_order_are_no_progress(scan_text: Scan) -> None:
    jumping = "".join(f"step {n * 617 % 1000}/1000 loss 2\n" for n in range(60))
    assert not Course(scan_text(OOM + jumping)).went_on(None, 1)
    assert Course(scan_text(OOM + steps(0, 60))).went_on(None, 1)


def test_epochs_that_start_anew_are_progress(scan_text: Scan) -> None:
    epochs = "".join(f"epoch {e} step {n}/20\n" for e in range(3) for n in range(20))
    assert Course(scan_text(OOM + epochs)).went_on(None, 1)
