"""Four micro-batches, and each adds the gradient of its own mean."""

import sys
from collections.abc import Callable

import torch
from torch import nn

PARTS = 4
loss_of = nn.MSELoss()


def add_up(model, x, y):
    for part_x, part_y in zip(x.chunk(PARTS), y.chunk(PARTS), strict=True):
        loss_of(model(part_x), part_y).backward()


# part: fixed
def add_up_means(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    """The gradient of the mean over the batch, in micro-batches: each counts with its share."""
    for part_x, part_y in zip(x.chunk(PARTS), y.chunk(PARTS), strict=True):
        loss = loss_of(model(part_x), part_y) * (len(part_x) / len(x))  # also for a short last one
        loss.backward()


# end: fixed


# part: check
def accumulation_ratio(
    model: nn.Module, x: torch.Tensor, y: torch.Tensor, accumulate: Callable[..., None]
) -> float:
    """How many times too large the gradient is that `accumulate` leaves; 1 is right."""
    model.zero_grad()
    loss_of(model(x), y).backward()
    big = torch.cat([p.grad.flatten() for p in model.parameters()]).norm()
    model.zero_grad()
    accumulate(model, x, y)
    parts = torch.cat([p.grad.flatten() for p in model.parameters()]).norm()
    ratio = (parts / big).item()
    print(f"gradient norm is {ratio:.3f} x that of one big batch")
    return ratio


# end: check

if __name__ == "__main__":
    torch.manual_seed(0)
    x, y = torch.rand(32, 8), torch.rand(32, 1)
    accumulate = add_up_means if "--fixed" in sys.argv else add_up
    accumulation_ratio(nn.Linear(8, 1), x, y, accumulate)
    print("ran to its end")
