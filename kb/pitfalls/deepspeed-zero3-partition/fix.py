"""Working with parameters that ZeRO-3 keeps in pieces."""

from __future__ import annotations

import deepspeed
import torch
from torch import nn


# part: gather
def resize_embedding(model: nn.Module, rows: int) -> None:
    """Grow an embedding in place of all ranks; rank 0's values are the ones kept."""
    weight = model.get_input_embeddings().weight
    with deepspeed.zero.GatheredParameters([weight], modifier_rank=0):
        if torch.distributed.get_rank() == 0:
            extra = rows - weight.shape[0]
            weight.data[-extra:] = weight.data[:-extra].mean(dim=0, keepdim=True)


# end: gather


# part: always
class WithImages(nn.Module):
    """Text batches run the vision tower on a dummy, so that all ranks run the same modules."""

    def __init__(self, tower: nn.Module, language: nn.Module) -> None:
        super().__init__()
        self.tower = tower
        self.language = language

    def forward(self, tokens: torch.Tensor, images: torch.Tensor | None) -> torch.Tensor:
        has_images = images is not None
        if images is None:
            images = tokens.new_zeros((1, 3, 336, 336), dtype=torch.bfloat16)
        features = self.tower(images)
        out = self.language(tokens, features if has_images else None)
        return out if has_images else out + 0.0 * features.sum()


# end: always
