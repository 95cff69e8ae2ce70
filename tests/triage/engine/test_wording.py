"""An error that happened against one that is only spoken of."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from triage.engine import Limits, Verdict
from triage.engine.lines import split_line
from triage.engine.wording import is_handled, is_mention

WORDS = "CUDA out of memory"


@pytest.mark.parametrize(
    "text",
    [
        "CUDA out of memory, retrying with a smaller batch",
        "NCCL timeout; attempt 2/5",
        "could not import apex, falling back to torch.optim",
        "CUDA out of memory: skipping batch 12",
        "flash-attn is missing, using the math kernel instead",
        "CUDA out of memory. Tried to allocate 3.00 GiB; halving to 32",
        "RuntimeError: CUDA out of memory. Tried to allocate 3.00 GiB. Retrying with batch size 8",
        "no index (EOFError: Ran out of input), made in 3.1 s",
        "cache miss: FileNotFoundError: [Errno 2] No such file: '/cache/f.bin'; building it",
        "converting frame raised error, suppressing error",
        "NCCL is not available (RuntimeError: no GPU), switching to gloo",
        "no checkpoint (FileNotFoundError: [Errno 2] 'a.pt'). A new run begins",
        "check_memory ... RuntimeError: CUDA out of memory -> as it should be -> pass",
        "RuntimeError: [pair.cc:534] Connection closed by peer [10.0.0.3]:45012  (expected)",
        "raising on purpose: RuntimeError: CUDA out of memory",
        "drill 7: injecting the fault CUDA out of memory",
        "no NVML (pynvml.NVMLError_LibraryNotFound: Not Found); GPU use will not be logged",
        "config (64,128) rejected: OutOfResources: out of resource: shared memory",
        "refused as expected: mat1 and mat2 shapes cannot be multiplied",
        "显存不足 CUDA out of memory，跳过该批次",
        "CUDA out of memory のためバッチをスキップします",
        "메모리 부족: CUDA out of memory. 배치를 줄여 다시 시도합니다",
    ],
)
def test_a_line_that_says_it_coped(text: str) -> None:
    assert is_handled(text)


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "torch.distributed.DistBackendError: NCCL error, unhandled system error",
        "RuntimeError: DataLoader worker (pid 3) is killed by signal: Bus error",
        "attempt 3/3: ConnectionError: Max retries exceeded",
        "ValueError: No columns match the signature: (x). The following have been ignored: [y]",
        "Found 212 modules in eval mode. If this is intentional, you can ignore this warning.",
        "You can suppress this exception and fall back to eager by setting suppress_errors",
        "worker 3 died (RuntimeError: CUDA out of memory), exiting",
        "terminate called after an unhandled exception: CUDA out of memory",
        "NCCL WARN NET/OFI Request completed with error. RC: 9. Error: 15 (unreachable). Length: 0",
    ],
)
def test_a_line_that_does_not(text: str) -> None:
    assert not is_handled(text)


def mention(text: str) -> bool:
    (line,) = split_line(text.encode(), 1, Limits())
    return is_mention(line, line.text, line.text.index(WORDS))


@pytest.mark.parametrize(
    "text",
    [
        "If you see CUDA out of memory, lower the batch size",
        "To avoid CUDA out of memory set max_split_size_mb",
        "This may lead to CUDA out of memory",
        'before, jobs could end in "CUDA out of memory"',
        "# CUDA out of memory is caught here",
        'raise RuntimeError("CUDA out of memory")',
        'retry_on: ["CUDA out of memory"]',
        "expecting 'CUDA out of memory' ... got it",
        "    'CUDA out of memory': 'lower the batch size',",
        'error_patterns = "CUDA out of memory"',
        "grep 'CUDA out of memory' train.log",
        "errors such as CUDA out of memory",
        'self.log.warning("CUDA out of memory")',
        'if "CUDA out of memory" in str(error): return None',
        'FATAL = ("NCCL error", "CUDA out of memory", "Bus error")',
        'there it was "RuntimeError: CUDA out of memory" and a smaller batch helped',
        "we used to see CUDA out of memory here",
        "two hours and no CUDA out of memory",
        "  31002 'CUDA out of memory',",
        "如果出现 CUDA out of memory，请减小 batch_size",
        "CUDA out of memory が発生した場合はバッチを小さくしてください",
        "CUDA out of memory 가 발생한 경우 배치를 줄이세요",
    ],
)
def test_advice_settings_and_code_only_mention_it(text: str) -> None:
    assert mention(text)


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "torch.OutOfMemoryError: CUDA out of memory.",
        "Training stopped. CUDA out of memory",
        "This may be slow. CUDA out of memory",
        '{"message": "CUDA out of memory"}',
        "[rank3]: RuntimeError: CUDA out of memory",
        'the engine failed with "CUDA out of memory" and stopped',
        "I get `RuntimeError: CUDA out of memory` after one epoch",
        '{"level": "error", "msg": "CUDA out of memory", "rank": 3}',
        "Exception: OutOfMemoryError('CUDA out of memory')",
        "CompileError: got RuntimeError(\"CUDA out of memory of pool 'a'\")",
        "报错信息：CUDA out of memory",
        '    "error": "CUDA out of memory",',
    ],
)
def test_events_are_no_mentions(text: str) -> None:
    assert not mention(text)


# ------------------------------------------------------------------ what the lines around it say

FAILURE = """\
Traceback (most recent call last):
  File "/workspace/net/step.py", line 8, in step
    return a @ b
RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x9 and 8x2)
"""
OTHER_FAILURE = """\
Traceback (most recent call last):
  File "/workspace/net/run.py", line 30, in <module>
    print(history["f1"])
KeyError: 'f1'
"""
Ask = Callable[..., Verdict]


@pytest.mark.parametrize(
    "text",
    [
        (
            "diff --git a/t.py b/t.py\n@@ -1,2 +1,2 @@ def run():\n"
            '-NAMES = "CUDA error: an illegal memory access was encountered"\n'
            "+RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x9 and 8x2)\n"
        ),
        (
            "usage: t.py [-h]\n\noptions:\n  --skip   drop batches that end in\n"
            "           RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x9 and 8x2)\n"
        ),
        (
            "Help on function f in module net:\n\nf(x)\n"
            "    RuntimeError: Expected to mark a variable ready only once.\n"
        ),
        " |  Raises:\n |      RuntimeError: Expected to mark a variable ready only once.\n",
        (
            "    >>> a @ b\n    Traceback (most recent call last):\n      ...\n"
            "    RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x9 and 8x2)\n"
        ),
        (
            '    """Multiplies.\n\n    RuntimeError: mat1 and mat2 shapes cannot be multiplied '
            '(4x9 and 8x2)\n    """\n'
        ),
        (
            "commit 1f2e3d4c5b6a\nAuthor: A <a@example.com>\n\n"
            "    Catch RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x9 and 8x2)\n"
        ),
        (
            "# Post-mortem of run 8812\n\nThe log said:\n\n"
            "> RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x9 and 8x2)\n"
        ),
        (
            "CUDA error: an illegal memory access was encountered\n"
            "    Printed when a kernel reads memory that is not its own.\n"
        ),
        (
            "t.py::test_a -------------------------------- live log call ------------\n"
            "ERROR    net:loop.py:41 CUDA error: an illegal memory access was encountered\nPASSED\n"
        ),
        (
            "test_a (t.T) ... RuntimeError: mat1 and mat2 shapes cannot be multiplied "
            "(4x9 and 8x2)\nok\n"
        ),
    ],
    ids=[
        "patch",
        "help",
        "pydoc function",
        "pydoc class",
        "sample",
        "docstring",
        "commit",
        "post-mortem",
        "glossary",
        "live log",
        "unittest",
    ],
)
def test_quoted_passages_are_no_failure(text: str, ask: Ask) -> None:
    assert ask(text).kind == "clean"


def test_a_real_session_is_no_sample(ask: Ask) -> None:
    text = "    >>> a @ b\n" + FAILURE.replace("/workspace/net/step.py", "<stdin>")
    assert ask(text.replace("\n", "\n    ")).diagnoses[0].slug == "shape-mismatch"


def test_what_follows_a_patch_counts_again(ask: Ask) -> None:
    patch = "diff --git a/t.py b/t.py\n@@ -1 +1 @@\n-a\n+b\n"
    assert ask(patch + FAILURE).diagnoses[0].slug == "shape-mismatch"


@pytest.mark.parametrize(
    "before",
    [
        "Exception ignored in: <function Loader.__del__ at 0x7f7d8a1f3d30>\n",
        (
            "[W 2026-03-19 15:02:44,001] Trial 7 failed because of the following error: "
            "RuntimeError('mat1 and mat2 shapes cannot be multiplied (4x9 and 8x2)').\n"
        ),
        "WON'T CONVERT step /workspace/net/step.py line 8\ndue to:\n",
        "WARNING: the metric could not be computed:\n",
    ],
)
def test_a_traceback_that_was_only_reported(before: str, ask: Ask) -> None:
    assert ask(before + FAILURE).kind == "clean"
    assert ask(before + FAILURE + OTHER_FAILURE).diagnoses[0].slug == "python-exception"


@pytest.mark.parametrize(
    "behind",
    [
        "Retrying in 5 s\n",
        "sample 831 is broken, taking 832 for it\n",
        "WARNING: ignoring this choice\n",
        "ok\n",
    ],
)
def test_a_traceback_that_the_next_line_copes_with(behind: str, ask: Ask) -> None:
    assert ask(FAILURE + behind).kind == "clean"
    other_ranks = "".join(f"[rank1]: {line}\n" for line in behind.splitlines())
    assert ask(FAILURE + other_ranks).diagnoses[0].slug == "shape-mismatch"


@pytest.mark.parametrize(
    "before",
    [
        "attempt 2/3 failed, retrying\n",
        "[W socket.cpp:663] [c10d] The client socket has failed to connect (errno: 111).\n",
        "/workspace/net/step.py:7: UserWarning: slow path\n  warnings.warn('slow path')\n",
        "WARNING: training crashed:\n",
        "RuntimeError: Caught RuntimeError in DataLoader worker process 0.\nOriginal ",
    ],
)
def test_a_traceback_that_follows_a_warning_is_not_reported_by_it(before: str, ask: Ask) -> None:
    assert ask(before + FAILURE).diagnoses[0].slug == "shape-mismatch"


@pytest.mark.parametrize(
    "behind",
    [
        "Found 212 modules in eval mode. If this is intentional, you can ignore this warning.",
        "You can suppress this by falling back to the slow kernel\n",
        "Exception ignored in: <function Loader.__del__ at 0x7f7d8a1f3d30>\n",
    ],
)
def test_advice_behind_a_traceback_copes_with_nothing(behind: str, ask: Ask) -> None:
    assert ask(FAILURE + behind).diagnoses[0].slug == "shape-mismatch"


def test_a_fallback_from_another_error_copes_with_nothing(ask: Ask) -> None:
    other = "WARNING: ImportError: cannot import name 'fused_adam' from 'apex'; falling back\n"
    assert ask(FAILURE + other).diagnoses[0].slug == "shape-mismatch"
    same = "WARNING: RuntimeError while the batch was scored; falling back to the mean\n"
    assert ask(FAILURE + same).kind == "clean"


def test_a_single_line_that_the_next_one_copes_with(ask: Ask) -> None:
    error = "WARNING ran out: CUDA out of memory. Tried to allocate 1.21 GiB (GPU 0)\n"
    assert ask(error.removeprefix("WARNING ") + " Skipping batch\n").kind == "clean"
    assert ask(error.removeprefix("WARNING ")).diagnoses[0].slug == "cuda-out-of-memory"


RETRY = "2026-06-30 17:00:41.220 | WARNING  | data:fetch:88 - fetch failed, attempt 1 of 4\n"


def test_a_try_that_another_one_followed(ask: Ask) -> None:
    went_on = "2026-06-30 17:00:46.702 | INFO     | data:fetch:91 - fetched on attempt 2\n"
    assert ask(RETRY + FAILURE + went_on).kind == "clean"
    assert ask(RETRY + FAILURE).diagnoses[0].slug == "shape-mismatch"


def test_a_thread_that_breaks_while_a_finished_run_shuts_down(ask: Ask) -> None:
    thread = "Exception in thread Thread-3 (loop):\n" + OTHER_FAILURE
    assert ask("Training finished after 30 epochs\n" + thread).kind == "clean"
    assert ask("Training started\n" + thread).kind == "named"


@pytest.mark.parametrize("level", ["warn", "error"])
def test_a_structured_line_has_its_level(level: str, ask: Ask) -> None:
    line = f'{{"lvl": "{level}", "msg": "sample", "err": "OSError: cannot identify image file"}}\n'
    assert (ask(line).kind == "clean") == (level == "warn")


def test_an_exception_may_say_what_is_in_what(ask: Ask) -> None:
    failure = (
        "OSError: When reading information for key 'c4/7' in bucket 'corpus': AWS Error "
        "NETWORK_CONNECTION during HeadObject operation: curlCode: 28, Timeout was reached\n"
    )
    assert ask(failure).diagnoses[0].slug == "storage-io-error"


def test_what_follows_a_commit_or_fails_in_a_live_log_counts(ask: Ask) -> None:
    commit = "commit 1f2e3d4c5b6a\nAuthor: A <a@example.com>\n\n    Add a test\n"
    assert ask(commit + FAILURE).diagnoses[0].slug == "shape-mismatch"
    live_log = "t.py::test_a ----------- live log call ------------\n"
    error = "ERROR    net:loop.py:41 CUDA error: an illegal memory access was encountered\n"
    assert ask(live_log + error + "FAILED\n").diagnoses[0].slug == "cuda-illegal-memory-access"


def test_a_quotation_yields_to_a_traceback_of_the_texts_own(ask: Ask) -> None:
    quoted = "> CUDA error: an illegal memory access was encountered\n"
    assert ask(quoted).diagnoses[0].slug == "cuda-illegal-memory-access"
    assert ask(quoted + "that was last week; now:\n" + FAILURE).diagnoses[0].slug == (
        "shape-mismatch"
    )
