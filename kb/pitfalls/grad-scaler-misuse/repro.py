"""Gradients are unscaled for clipping after every micro-batch, not once before the step."""

import sys
from collections.abc import Sequence

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def loss_of(model, micro_batch):
    return model(micro_batch).float().pow(2).mean()


def clip_each_micro_batch(model, optimizer, scaler, micro_batches):
    for micro_batch in micro_batches:
        with torch.autocast(DEVICE, dtype=torch.float16):
            loss = loss_of(model, micro_batch) / len(micro_batches)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)


# part: fixed
def train_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
    micro_batches: Sequence[torch.Tensor],
) -> None:
    """One step over several micro-batches, with clipping: each call where it may stand."""
    for micro_batch in micro_batches:
        with torch.autocast(DEVICE, dtype=torch.float16):
            loss = loss_of(model, micro_batch) / len(micro_batches)
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)  # once, and only to clip
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)  # once per optimizer
    scaler.update()  # once, after all optimizers
    optimizer.zero_grad(set_to_none=True)


# end: fixed

if __name__ == "__main__":
    model = nn.Linear(4, 1, device=DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler(DEVICE)
    step = train_step if "--fixed" in sys.argv else clip_each_micro_batch
    step(model, optimizer, scaler, torch.rand(2, 8, 4, device=DEVICE).unbind())
    print("ran to its end")
