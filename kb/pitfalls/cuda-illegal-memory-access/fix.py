from __future__ import annotations

import torch
from torch import Tensor


# part: streams
def copy_ahead(batch: Tensor, device: torch.device, side: torch.cuda.Stream) -> Tensor:
    """The pinned batch on the device, copied on stream `side` and safe to use on the current one."""
    with torch.cuda.stream(side):
        moved = batch.to(device, non_blocking=True)
    current = torch.cuda.current_stream(device)
    current.wait_stream(side)  # the copy is done before anyone reads
    moved.record_stream(current)  # its memory is not reused while they do
    return moved


# end: streams


# part: extension
def checked(points: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    """Arguments as a hand-written kernel may take them; raises where it would read elsewhere."""
    if points.device != index.device or not points.is_cuda:
        raise ValueError(f"points on {points.device}, index on {index.device}")
    if index.dtype is not torch.int32 or points.numel() >= 2**31:
        raise ValueError(f"kernel counts in 32 bits; got {index.dtype}, {points.numel()} values")
    if index.numel():
        low, high = (int(v) for v in index.aminmax())
        if low < 0 or high >= len(points):
            raise IndexError(f"index {low}..{high}, but {len(points)} points")
    return points.contiguous(), index.contiguous()


# end: extension
