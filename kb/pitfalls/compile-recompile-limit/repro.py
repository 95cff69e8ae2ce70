"""A compiled module counts its calls in an attribute of Python's own."""

import sys

import torch
from torch import nn


# part: fixed
class Warmup(nn.Module):
    """Scales its input up over the first calls; the count is a buffer, so data and no guard."""

    def __init__(self, calls: int) -> None:
        super().__init__()
        self.calls = calls
        self.register_buffer("step", torch.zeros((), dtype=torch.long))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.step += 1
        return x * (self.step / self.calls).clamp(max=1.0)


# end: fixed


class CountingWarmup(nn.Module):
    def __init__(self, calls):
        super().__init__()
        self.calls = calls
        self.step = 0

    def forward(self, x):
        self.step += 1
        return x * min(self.step / self.calls, 1.0)


model = Warmup(100) if "--fixed" in sys.argv else CountingWarmup(100)
compiled = torch.compile(model, backend="eager")
for _ in range(12):
    scaled = compiled(torch.ones(4))
print(f"scaled by {scaled.mean():.2f}")
print("ran to its end")
