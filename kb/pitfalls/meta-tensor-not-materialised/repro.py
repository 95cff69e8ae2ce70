"""A model built on the meta device, with a head that the checkpoint lacks."""

import sys

import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Linear(8, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.backbone(x))


# part: fixed
def materialise(
    model: nn.Module, state: dict[str, torch.Tensor], device: str, new: tuple[str, ...] = ()
) -> nn.Module:
    """Load `state` into a model on the meta device; modules named in `new` are initialised.

    Stops with the names of what would be left without a value.
    """
    model.load_state_dict(state, strict=False, assign=True)
    for name in new:
        for module in model.get_submodule(name).modules():
            if hasattr(module, "reset_parameters"):
                module.to_empty(device=device, recurse=False)
                module.reset_parameters()
    tensors = (*model.named_parameters(), *model.named_buffers())
    if without := [name for name, tensor in tensors if tensor.is_meta]:
        raise SystemExit(f"no value for {len(without)} tensors, first {without[:5]}")
    return model.to(device)


# end: fixed

state = nn.ModuleDict({"backbone": nn.Linear(8, 8)}).state_dict()
with torch.device("meta"):
    model = Classifier()
if "--fixed" in sys.argv:
    materialise(model, state, "cpu", new=("head",))
else:
    print(model.load_state_dict(state, strict=False, assign=True))
    model.to("cpu")
print(f"scores of shape {tuple(model(torch.rand(4, 8)).shape)}")
print("ran to its end")
