"""The schedule moves at the top of the epoch, before the optimizer."""

import sys
from collections.abc import Iterable

import torch
from torch import nn


def loss_of(model, batch):
    return model(batch).pow(2).mean()


def train_epoch_schedule_first(model, optimizer, scheduler, batches):
    scheduler.step()
    for batch in batches:
        optimizer.zero_grad(set_to_none=True)
        loss_of(model, batch).backward()
        optimizer.step()


# part: fixed
def train_epoch(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    scheduler: torch.optim.lr_scheduler.LRScheduler,
    batches: Iterable[torch.Tensor],
) -> None:
    """One epoch; the schedule moves once, after the optimizer: never before."""
    for batch in batches:
        optimizer.zero_grad(set_to_none=True)
        loss_of(model, batch).backward()
        optimizer.step()
    scheduler.step()


# end: fixed

if __name__ == "__main__":
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1)
    run = train_epoch if "--fixed" in sys.argv else train_epoch_schedule_first
    for epoch in range(2):
        run(model, optimizer, scheduler, torch.rand(2, 8, 4))
        print(f"epoch {epoch} learning rate {optimizer.param_groups[0]['lr']:.4f}")
    print("ran to its end")
