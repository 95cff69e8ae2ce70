"""Validation puts the model into eval mode, and nothing brings it back."""

import sys

# part: fixed
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def evaluating(model: nn.Module) -> Iterator[nn.Module]:
    """eval() for the block, then each module's own mode again: frozen parts stay frozen."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad():
            yield model
    finally:
        for module, training in modes.items():
            module.training = training


# end: fixed


# part: check
def report_eval_mode(model: nn.Module) -> None:
    """Say how many modules are in eval mode; call it before the forward of a training step."""
    modules = [m for m in model.modules() if not list(m.children())]
    stuck = [m for m in modules if not m.training]
    if stuck:
        print(f"training step with {len(stuck)} of {len(modules)} modules in eval mode")


# end: check


def validate(model, x):
    model.eval()
    with torch.no_grad():
        return model(x).mean().item()


def validate_and_restore(model, x):
    with evaluating(model):
        return model(x).mean().item()


if __name__ == "__main__":
    run = validate_and_restore if "--fixed" in sys.argv else validate
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    for epoch in range(2):
        report_eval_mode(model)
        model(torch.rand(8, 4)).mean().backward()
        print(f"epoch {epoch}: validation {run(model, torch.rand(8, 4)):.4f}")
    print("ran to its end")
