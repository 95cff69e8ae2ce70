"""The base model of a fine-tune is frozen, and its head with it."""

import sys

import torch
from torch import nn

model = nn.Sequential()
model.add_module("base", nn.Linear(8, 8))
model.add_module("head", nn.Linear(8, 2))
for parameter in model.parameters():
    parameter.requires_grad_(False)


# part: fixed
def thaw(model: nn.Module, prefixes: tuple[str, ...]) -> list[str]:
    """Make the parameters below these names trainable; all that are, and never none."""
    for name, parameter in model.named_parameters():
        if name.startswith(prefixes):
            parameter.requires_grad_(True)
    trainable = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    if not trainable:
        raise SystemExit(f"nothing to train: no parameter starts with one of {prefixes}")
    return trainable


# end: fixed

if "--fixed" in sys.argv:
    print(f"trainable: {thaw(model, ('head.', 'classifier.'))}")
loss = nn.functional.cross_entropy(model(torch.rand(4, 8)), torch.tensor([0, 1, 1, 0]))
loss.backward()
print(f"loss {loss.item():.3f}")
print("ran to its end")
