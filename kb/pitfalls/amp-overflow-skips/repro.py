"""Inputs nobody normalised and a loss that is a sum: float16 gradients overflow at every scale."""

import sys
from collections.abc import Iterable

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def loss_of(model, x):
    return model(x).float().pow(2).sum()


def train_in_float16(model, optimizer, batches):
    scaler = torch.amp.GradScaler(DEVICE)
    for step, batch in enumerate(batches):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(DEVICE, dtype=torch.float16):
            loss = loss_of(model, batch)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        print(f"step {step} loss {loss.item():.4g} loss scale {scaler.get_scale():g}")


# part: fixed
def train_in_bfloat16(
    model: nn.Module, optimizer: torch.optim.Optimizer, batches: Iterable[torch.Tensor]
) -> None:
    """bfloat16 has the range of float32: no loss scale, and nothing that skips steps."""
    for step, batch in enumerate(batches):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            loss = loss_of(model, batch)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print(f"step {step} loss {loss.item():.4g}")


# end: fixed

if __name__ == "__main__":
    torch.manual_seed(0)
    model = nn.Linear(16, 4, device=DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    batches = 10_000 * torch.rand(20, 8, 16, device=DEVICE)  # raw 16-bit pixels
    train = train_in_bfloat16 if "--fixed" in sys.argv else train_in_float16
    train(model, optimizer, batches)
    print("ran to its end")
