from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


# part: bucket
def collate_to_buckets(samples: list[Tensor], step: int = 256, pad: int = 0) -> Tensor:
    """Token sequences as one batch whose length is a multiple of `step`.

    Equal shapes come again and again, so that the allocator's cached blocks fit them.
    """
    longest = max(len(sample) for sample in samples)
    length = -(-longest // step) * step
    return torch.stack([F.pad(s, (0, length - len(s)), value=pad) for s in samples])


# end: bucket
