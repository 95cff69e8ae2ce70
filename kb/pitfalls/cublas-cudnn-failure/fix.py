from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


# part: isolate
@contextlib.contextmanager
def without_fast_paths() -> Iterator[None]:
    """Run the same step on the plain kernels; if it passes, the switched-off library failed."""
    with (
        torch.backends.cudnn.flags(enabled=False),
        torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
    ):
        yield


# end: isolate
