from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch


# part: checkpoints
@contextlib.contextmanager
def cuda_section(name: str) -> Iterator[None]:
    """Wait at the section's end, so that an error of its kernels carries its name.

    `with cuda_section("embedding"): h = embed(x)`; remove it afterwards, each one stalls.
    """
    torch.cuda.synchronize()
    try:
        yield
        torch.cuda.synchronize()
    except RuntimeError as error:
        raise RuntimeError(f"CUDA work of section {name!r} failed") from error


# end: checkpoints


# part: timing
def time_ms(work: Callable[[], object], repeats: int = 20, warm_up: int = 3) -> float:
    """Mean milliseconds of `work` on the current stream, measured on the GPU."""
    for _ in range(warm_up):
        work()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(repeats):
        work()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / repeats


# end: timing
