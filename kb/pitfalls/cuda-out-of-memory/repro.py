"""A step whose activations need twice the memory that this process may take."""

import sys
from collections.abc import Callable

import torch
from torch import nn

LIMIT_BYTES = 1 << 30
ROWS = 1 << 16


def train_step_at_once(model, batch, loss_of, optimizer):
    optimizer.zero_grad(set_to_none=True)
    loss_of(model, batch).backward()
    optimizer.step()


# part: fixed
def train_step(
    model: nn.Module,
    batch: dict[str, torch.Tensor],
    loss_of: Callable[..., torch.Tensor],
    optimizer: torch.optim.Optimizer,
    pieces: int = 8,
) -> None:
    """One optimizer step over `batch`, in `pieces` of its rows.

    The division makes the gradient that of the whole batch when the pieces have equal size.
    """
    optimizer.zero_grad(set_to_none=True)
    names = list(batch)
    for values in zip(*(batch[name].chunk(pieces) for name in names), strict=True):
        loss = loss_of(model, dict(zip(names, values, strict=True))) / pieces
        loss.backward()  # frees this piece's activations before the next one starts
    optimizer.step()


# end: fixed


def loss_of(model, batch):
    return model(batch["x"]).pow(2).mean()


if __name__ == "__main__":
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(LIMIT_BYTES / total)  # a small GPU
    layers = [layer for _ in range(8) for layer in (nn.Linear(1024, 1024), nn.ReLU())]
    model = nn.Sequential(*layers).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    batch = {"x": torch.rand(ROWS, 1024, device="cuda")}
    step = train_step if "--fixed" in sys.argv else train_step_at_once
    step(model, batch, loss_of, optimizer)
    print(f"peak {torch.cuda.max_memory_allocated() >> 20} MiB")
    print("ran to its end")
