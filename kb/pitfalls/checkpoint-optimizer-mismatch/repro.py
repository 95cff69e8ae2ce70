"""A head was added to the model since the optimizer's state was saved."""

import sys

# part: fixed
from typing import Any

import torch
from torch import nn


def resume_optimizer(
    model: nn.Module, saved: dict[str, Any], added: str, added_lr: float
) -> torch.optim.AdamW:
    """The saved run's optimizer, extended by what came in since.

    `added` is the prefix of the new parameters' names. The old ones must have the order of the
    saved run: the state goes by position.
    """
    named = list(model.named_parameters())
    optimizer = torch.optim.AdamW([p for name, p in named if not name.startswith(added)])
    optimizer.load_state_dict(saved)
    new = [p for name, p in named if name.startswith(added)]
    optimizer.add_param_group({"params": new, "lr": added_lr})
    return optimizer


# end: fixed


def resume_with_all(model, saved, added, added_lr):
    optimizer = torch.optim.AdamW(model.parameters())
    optimizer.load_state_dict(saved)
    return optimizer


def train_step(model, optimizer):
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


if __name__ == "__main__":
    body = nn.Linear(8, 8)
    first_run = torch.optim.AdamW(body.parameters())
    train_step(body, first_run)
    model = nn.Sequential()
    model.add_module("body", body)
    model.add_module("head", nn.Linear(8, 2))
    resume = resume_optimizer if "--fixed" in sys.argv else resume_with_all
    optimizer = resume(model, first_run.state_dict(), "head.", 1e-4)
    train_step(model, optimizer)
    print(f"trains {sum(len(group['params']) for group in optimizer.param_groups)} tensors")
    print("ran to its end")
