"""Root before consequence, handled is not fatal, nothing known is said so."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kb.catalog import Catalog
from triage.engine import Evidence, Verdict, diagnose
from triage.engine.verdict import Diagnosis

Ask = Callable[..., Verdict]

OOM = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 79.15 GiB total)\n"
WATCHDOG = (
    "[rank{0}]:[E1130 04:12:0{0}.123456 ProcessGroupNCCL.cpp:616] [Rank {0}] Watchdog caught "
    "collective operation timeout: WorkNCCL(SeqNum=4411, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, "
    "Timeout(ms)=600000) ran for 600001 milliseconds before timing out.\n"
)
KEY_ERROR = (
    "{0}Traceback (most recent call last):\n"
    '{0}  File "/home/u/train.py", line 61, in main\n'
    '{0}    lr = config["lr"]\n'
    "{0}KeyError: 'lr'\n"
)


def first(verdict: Verdict) -> Diagnosis:
    assert verdict.diagnoses, verdict.sentence
    return verdict.diagnoses[0]


def test_a_dead_rank_explains_the_peers_timeouts(ask: Ask) -> None:
    verdict = ask("[rank3]: " + OOM + "".join(WATCHDOG.format(r) for r in (0, 1, 2)))
    answer = first(verdict)
    assert verdict.kind == "named"
    assert (answer.slug, answer.rank) == ("cuda-out-of-memory", 3)
    assert "nccl-watchdog-timeout" in answer.explains
    assert [d.slug for d in verdict.diagnoses].count("nccl-watchdog-timeout") == 1


def test_a_peer_that_waited_is_not_the_rank_that_failed(ask: Ask) -> None:
    answer = first(ask(OOM + WATCHDOG.format(1)))
    assert (answer.slug, answer.rank) == ("cuda-out-of-memory", None)


def test_the_kernel_log_of_a_sick_gpu_is_told_of_the_rank_whose_device_failed(ask: Ask) -> None:
    xid = "[  500.123] NVRM: Xid (PCI:0000:d0:00): 79, GPU has fallen off the bus.\n"
    failed = "[rank6]: RuntimeError: CUDA error: unspecified launch failure\n"
    waited = "".join(WATCHDOG.format(r) for r in range(6))
    answer = first(ask(failed + waited + xid))
    assert (answer.slug, answer.rank) == ("gpu-hardware-fault", 6)


def test_what_the_kernel_logged_weeks_before_did_not_end_this_run(ask: Ask) -> None:
    xid = (
        "[Tue Nov  {} 04:11:09 2026] NVRM: Xid (PCI:0000:d0:00): 79, GPU has fallen off the bus.\n"
    )
    run = "2026-11-27 22:10:09,001 - INFO - train.py:88 - step 1 loss 2.31\n" + KEY_ERROR.format("")
    assert first(ask(xid.format(3) + run)).slug == "python-exception"
    assert first(ask(xid.format(3), run)).slug == "python-exception"
    assert first(ask(xid.format(27) + run)).slug == "gpu-hardware-fault"


def test_a_bare_timeout_is_a_symptom_and_undetermined(ask: Ask) -> None:
    verdict = ask("".join(WATCHDOG.format(r) for r in (0, 1, 2)))
    assert verdict.kind == "undetermined"
    assert (first(verdict).slug, first(verdict).role) == ("nccl-watchdog-timeout", "symptom")
    assert verdict.next


def test_an_unknown_exception_of_one_rank_goes_before_what_its_peers_say(ask: Ask) -> None:
    verdict = ask(KEY_ERROR.format("[rank3]: ") + WATCHDOG.format(0) + WATCHDOG.format(1))
    answer = first(verdict)
    assert (answer.slug, answer.rank) == ("python-exception", 3)
    assert answer.values["exception"] == "KeyError"
    assert "nccl-watchdog-timeout" in answer.explains
    assert any("/home/u/train.py:61" in reason for reason in answer.because)


def test_the_first_of_a_chain_is_the_cause(ask: Ask) -> None:
    second = KEY_ERROR.format("").replace("KeyError: 'lr'", "LookupError: no such setting")
    text = (
        KEY_ERROR.format("")
        + "\nThe above exception was the direct cause of the following exception:\n\n"
        + second
    )
    assert first(ask(text)).values["exception"] == "KeyError"


def test_the_words_of_a_launcher_do_not_outrank_the_error(ask: Ask) -> None:
    tail = (
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        "train.py FAILED\nRoot Cause (first observed failure):\n[0]:\n  host      : node-1\n"
        "  rank      : 2 (local_rank: 2)\n  exitcode  : 1 (pid: 4242)\n"
    )
    verdict = ask(KEY_ERROR.format("") + tail)
    assert first(verdict).slug == "python-exception"
    assert [d.slug for d in verdict.diagnoses[1:]] == ["torchrun-child-failed"]


@pytest.mark.parametrize(
    "text",
    [
        "WARNING: CUDA out of memory. Tried to allocate 2.00 GiB; retrying with a smaller batch\n",
        "If you see CUDA out of memory. Tried to allocate, lower the batch size\n",
        'retry_on: ["CUDA out of memory. Tried to allocate"]\n',
        "WARNING: ImportError: cannot import name 'fused_adam' from 'apex'; falling back\n",
        "Errors: 0, failed: 0\nTraining finished.\n",
        "",
    ],
)
def test_what_is_handled_advised_or_set_is_no_failure(text: str, ask: Ask) -> None:
    verdict = ask(text + "".join(f"step {n}/9 loss 2.{n}\n" for n in range(9)))
    assert verdict.kind == "clean", verdict.sentence
    assert verdict.diagnoses == ()
    assert verdict.next == ()


def test_progress_after_an_error_says_that_the_run_survived_it(ask: Ask) -> None:
    progress = "".join(f"step {n}/9 loss 2.{n}\n" for n in range(9))
    assert ask("step 0/9 loss 3\n" + OOM + progress).kind == "clean"
    assert first(ask(progress + OOM)).slug == "cuda-out-of-memory"


def test_progress_of_another_rank_saves_nobody(ask: Ask) -> None:
    progress = "".join(f"[rank1]: step {n}/9 loss 2.{n}\n" for n in range(9))
    assert first(ask("[rank0]: " + OOM + progress)).slug == "cuda-out-of-memory"


def test_a_failure_that_no_entry_knows_is_not_guessed_at(ask: Ask) -> None:
    verdict = ask("step 1 loss 2\nFATAL: the frobnicator gave up on shard 7\n")
    assert verdict.kind == "undetermined"
    assert verdict.next
    assert all(d.role == "symptom" or d.confidence == "hint" for d in verdict.diagnoses)


def test_the_earlier_of_two_unrelated_roots_stands_first(ask: Ask) -> None:
    full = "OSError: [Errno 28] No space left on device: '/ckpt/step_100.pt'\n"
    assert first(ask(OOM + "\n" * 3 + full)).slug == "cuda-out-of-memory"
    assert first(ask(full + "\n" * 3 + OOM)).slug == "disk-full"


PINNED = (
    '  File "/opt/torch/utils/data/_utils/pin_memory.py", line 59, in pin_memory\n'
    "    return data.pin_memory(device)\n"
    "torch.AcceleratorError: CUDA error: out of memory\n"
)
SEGFAULT = "[rank{0}]: Fatal Python error: Segmentation fault\n"
ABORTED = "[rank{0}]: Fatal Python error: Aborted\n"
NO_COMPILER = (
    "torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:\n"
    "RuntimeError: Failed to find C compiler. Please specify via CC environment variable.\n"
)
NO_FILE = "FileNotFoundError: [Errno 2] No such file or directory: '/data/train.json'\n"
CANCELLED = "slurmstepd: error: *** JOB 4711 ON n12 CANCELLED AT 2026-03-01T08:00:00 {0} ***\n"


def slugs(verdict: Verdict) -> list[str]:
    return [d.slug for d in verdict.diagnoses]


def test_a_full_gpu_is_not_the_doing_of_the_thread_that_pins(ask: Ask) -> None:
    thread = "RuntimeError: Pin memory thread exited unexpectedly\n"
    verdict = ask(thread + OOM)
    assert "cuda-out-of-memory" in slugs(verdict)
    assert "cuda-out-of-memory" not in first(verdict).explains
    answer = first(ask(OOM + thread))
    assert (answer.slug, answer.explains) == (
        "cuda-out-of-memory",
        ("dataloader-pin-memory-failure",),
    )


def test_host_memory_that_cannot_be_pinned_is_no_full_gpu(ask: Ask) -> None:
    assert "cuda-out-of-memory" not in slugs(ask(PINNED))


def test_a_failed_compilation_loses_no_file(ask: Ask) -> None:
    verdict = ask(NO_COMPILER + NO_FILE)
    assert "file-not-found" not in first(verdict).explains
    assert {"compile-backend-failure", "file-not-found"} <= set(slugs(verdict))


def test_the_watchdog_ends_its_own_process_only(ask: Ask) -> None:
    own = ask(WATCHDOG.format(1) + ABORTED.format(1))
    assert (own.kind, first(own).slug) == ("undetermined", "nccl-watchdog-timeout")
    other = ask(WATCHDOG.format(1) + SEGFAULT.format(3))
    assert (other.kind, first(other).slug, first(other).rank) == ("named", "process-segfault", 3)
    before = ask(SEGFAULT.format(1) + WATCHDOG.format(1))
    assert (before.kind, first(before).slug) == ("named", "process-segfault")


def test_a_hang_ends_at_the_time_limit(ask: Ask) -> None:
    uneven = "RuntimeError: Detected at least one rank that exhausted inputs. Throwing\n"
    answer = first(ask(uneven + CANCELLED.format("DUE TO TIME LIMIT")))
    assert answer.slug == "collective-uneven-inputs"
    assert "scheduler-killed" in answer.explains


def test_nan_breaks_the_factorisation_that_meets_it(ask: Ask) -> None:
    nan = "".join(f"step {n} loss nan\n" for n in range(5))
    failed = "torch._C._LinAlgError: linalg.cholesky: The factorization could not be completed\n"
    verdict = ask("".join(f"step {n} loss 2.1\n" for n in range(5)) + nan + failed)
    assert first(verdict).slug == "loss-nan"


def test_a_rank_at_work_is_seen_behind_what_it_printed_when_it_was_ended(ask: Ask) -> None:
    waits = "".join(
        f"[rank{rank}]:[E1130 04:12:01.123456 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog "
        "caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1, "
        "NumelOut=1, Timeout(ms)=600000) ran for 600001 milliseconds before timing out.\n"
        for rank in (1, 2, 3)
    )
    busy = "[rank0]: INFO consolidating the optimizer's shards into /ckpt/last\n"
    after = "[rank0]: INFO received SIGTERM\n[rank0]: INFO closing the logger\n"
    answer = first(ask(busy + waits + after))
    assert (answer.slug, answer.rank) == ("collective-slow-rank", 0)
    over = "[rank0]: INFO finished in 4 s\n"
    assert first(ask(busy + over + waits + after)).slug == "nccl-watchdog-timeout"


def test_a_host_explains_nothing_on_another_one(ask: Ask) -> None:
    fault = "{0}: [ 99.1] NVRM: Xid (PCI:0000:4e:00): 79, pid=7, GPU has fallen off the bus.\n"
    broken = "{0}: RuntimeError: CUDA error: unspecified launch failure\n"
    same = ask(fault.format("node-2") + broken.format("node-2"))
    assert "cuda-launch-failure" in first(same).explains
    other = ask(fault.format("node-2") + broken.format("node-1"))
    assert (first(other).slug, first(other).host) == ("gpu-hardware-fault", "node-2")
    assert {d.slug for d in other.diagnoses if d.role == "root"} >= {"cuda-launch-failure"}
    assert "cuda-launch-failure" not in first(other).explains


def test_the_bar_of_the_training_makes_no_rank_slow(ask: Ask) -> None:
    tail = "".join(WATCHDOG.format(rank) for rank in (1, 2))
    bar = "{0}:  31%|███▏      | 310/1000 [09:58<22:12,  1.93s/it{1}]\n"
    busy = ask(bar.format("Tokenizing", "") + tail)
    assert first(busy).slug == "collective-slow-rank"
    training = ask(bar.format("Epoch 2", ", loss=1.98, lr=3e-4") + tail)
    assert first(training).slug == "nccl-watchdog-timeout"


def test_evidence_lines_are_lines_of_the_text(ask: Ask) -> None:
    lines = ["step 1", "step 2", OOM.strip(), *WATCHDOG.format(1).splitlines()]
    for diagnosis in ask("\n".join(lines)).diagnoses:
        for item in diagnosis.evidence:
            assert item.text == lines[item.line - 1]
            assert item.line <= item.end_line <= len(lines)


def test_the_same_failure_has_the_same_fingerprint(ask: Ask) -> None:
    one = ask("[rank3]: " + KEY_ERROR.format(""))
    other = ask("step 9\n" * 40 + KEY_ERROR.format("[rank7]: ").replace("/home/u", "/home/v"))
    different = ask(KEY_ERROR.format("").replace("'lr'", "'momentum'"))
    assert one.fingerprint == other.fingerprint
    assert one.fingerprint != different.fingerprint


def test_every_symptom_of_the_catalog_has_a_cause_in_it(catalog: Catalog) -> None:
    explained = {slug for pitfall in catalog for slug in pitfall.explains}
    symptoms = {pitfall.slug for pitfall in catalog if pitfall.role == "symptom"}
    assert symptoms - explained == set()


def test_nothing_at_all_is_clean(catalog: Catalog) -> None:
    verdict = diagnose([], catalog)
    assert (verdict.kind, verdict.lines, verdict.bytes) == ("clean", 0, 0)
    assert diagnose([Evidence()], catalog).kind == "clean"
