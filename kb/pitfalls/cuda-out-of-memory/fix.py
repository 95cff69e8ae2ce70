from __future__ import annotations

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


# part: checkpoint
class Stack(nn.Module):
    """Blocks that keep only their inputs; the rest is recomputed in backward (about 30 % slower)."""

    def __init__(self, blocks: nn.ModuleList) -> None:
        super().__init__()
        self.blocks = blocks

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.training else block(x)
        return x


# end: checkpoint


# part: autocast
def loss_in_bfloat16(model, batch, loss_of) -> torch.Tensor:
    """Forward pass in bfloat16; call backward outside the block. No GradScaler is needed."""
    with torch.autocast("cuda", dtype=torch.bfloat16):
        return loss_of(model, batch)


# end: autocast
