"""A checkpointed block whose recomputation can be compared with its first run."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


# part: debug
class Block(nn.Module):
    """A layer under activation checkpointing; `debug` prints both traces when they differ."""

    def __init__(self, layer: nn.Module, *, debug: bool = False) -> None:
        super().__init__()
        self.layer = layer
        self.debug = debug

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(
            self.layer,
            x,
            use_reentrant=False,
            preserve_rng_state=True,  # dropout draws the same mask again
            debug=self.debug,  # the error then lists the operations of both runs
        )


# end: debug
