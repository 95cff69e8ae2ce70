from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


# part: warm_up
def warm_up_libraries(device: torch.device, fraction: float = 0.95) -> None:
    """Create the cuBLAS and cuDNN handles while there is memory; call it before the model.

    The limit makes PyTorch fail with a clear out-of-memory error before the libraries fail.
    """
    torch.cuda.set_per_process_memory_fraction(fraction, device)
    square = torch.ones(16, 16, device=device)
    image = torch.ones(1, 1, 16, 16, device=device)
    (square @ square).sum().item()
    torch.nn.functional.conv2d(image, image[:, :, :3, :3]).sum().item()


# end: warm_up


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
