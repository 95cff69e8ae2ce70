"""An error that happened against one that is only spoken of."""

from __future__ import annotations

import pytest

from triage.engine import Limits
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
        "# CUDA out of memory is caught here",
        'raise RuntimeError("CUDA out of memory")',
        'retry_on: ["CUDA out of memory"]',
        'error_patterns = "CUDA out of memory"',
        "grep 'CUDA out of memory' train.log",
        "errors such as CUDA out of memory",
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
    ],
)
def test_events_are_no_mentions(text: str) -> None:
    assert not mention(text)
