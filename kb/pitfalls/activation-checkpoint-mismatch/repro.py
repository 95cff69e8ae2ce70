"""A block under activation checkpointing keeps the keys of its earlier calls."""

import sys

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class CachingAttention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.past = torch.zeros(2, 0, width)

    def forward(self, x):
        keys = torch.cat([self.past, self.key(x)], dim=1)
        self.past = keys.detach()
        return torch.softmax(self.query(x) @ keys.mT, dim=-1) @ keys


# part: fixed
class Attention(nn.Module):
    """A function of its inputs: what earlier calls left comes in and goes out as an argument."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor, past: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        keys = torch.cat([past, self.key(x)], dim=1)
        return torch.softmax(self.query(x) @ keys.mT, dim=-1) @ keys, keys


def run_checkpointed(
    block: Attention, x: torch.Tensor, past: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output and next past; the recomputation starts from the same past as the first run."""
    output, keys = checkpoint(block, x, past, use_reentrant=False)
    return output, keys.detach()


# end: fixed

windows = torch.rand(3, 2, 4, 8)
past = torch.zeros(2, 0, 8)
block = Attention(8) if "--fixed" in sys.argv else CachingAttention(8)
for window in windows:
    if "--fixed" in sys.argv:
        output, past = run_checkpointed(block, window, past)
    else:
        output = checkpoint(block, window, use_reentrant=False)
    output.sum().backward()
print("ran to its end")
