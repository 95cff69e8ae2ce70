"""From a model on the meta device to one with data."""

from __future__ import annotations

# part: materialise
import torch
from torch import nn


def materialise(model: nn.Module, state: dict[str, torch.Tensor], device: str) -> nn.Module:
    """Load `state` into a model that was built on the meta device; names what has no value."""
    result = model.load_state_dict(state, strict=False, assign=True)
    buffers = {name for name, tensor in model.named_buffers() if tensor.is_meta}
    if result.missing_keys or buffers:
        without = sorted(set(result.missing_keys) | buffers)
        raise SystemExit(f"no value for {len(without)} tensors, first {without[:5]}")
    return model.to(device)


# end: materialise
