"""A loop that clears no gradients: each step is one over all batches so far."""

import sys
from collections.abc import Callable

import torch
from torch import nn


# part: check
def watch_gradients(optimizer: torch.optim.Optimizer, backward: Callable[[], None]) -> None:
    """Call it in place of loss.backward() while searching; `backward` is loss.backward."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    left = [p.grad.norm() for p in parameters if p.grad is not None]
    if left and torch.stack(left).norm() > 0:
        print(f"gradients left over before backward: norm {torch.stack(left).norm().item():.4f}")
    backward()
    missing = sum(p.grad is None for p in parameters)
    if missing:
        print(f"gradients missing before step: {missing} of {len(parameters)} parameters")


# end: check


def step_on_all_so_far(model, optimizer, loss_of, batch):
    loss = loss_of(model, batch)
    watch_gradients(optimizer, loss.backward)
    optimizer.step()


# part: fixed
def train_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss_of: Callable[[nn.Module, torch.Tensor], torch.Tensor],
    batch: torch.Tensor,
) -> None:
    """Clear, backward, step: in this order, each once."""
    optimizer.zero_grad(set_to_none=True)
    loss = loss_of(model, batch)
    watch_gradients(optimizer, loss.backward)  # loss.backward() when the search is over
    optimizer.step()


# end: fixed

if __name__ == "__main__":
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    step = train_step if "--fixed" in sys.argv else step_on_all_so_far
    for batch in torch.rand(3, 8, 4):
        step(model, optimizer, lambda model, batch: model(batch).pow(2).mean(), batch)
    print("ran to its end")
