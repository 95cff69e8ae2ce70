from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


# part: pieces
def in_pieces(kernel: Callable[[Tensor], Tensor], x: Tensor, rows: int = 65_535) -> Tensor:
    """`kernel(x)` over at most `rows` rows at a time, with contiguous, non-empty input.

    65,535 is the largest grid in y and z; kernels that map rows to these axes fail above it.
    """
    if x.shape[0] == 0:
        raise ValueError("no rows: the launch would have a grid of 0 blocks")
    return torch.cat([kernel(piece.contiguous()) for piece in x.split(rows)])


# end: pieces
