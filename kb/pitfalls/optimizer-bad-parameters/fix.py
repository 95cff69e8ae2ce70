"""Parameter groups with and without weight decay."""

from __future__ import annotations

# part: groups
import torch
from torch import nn


def make_optimizer(model: nn.Module, lr: float, decay: float) -> torch.optim.AdamW:
    """AdamW over every trainable parameter once; stops when there is none."""
    trainable = {id(p): p for p in model.parameters() if p.requires_grad}
    if not trainable:
        frozen = sum(1 for _ in model.parameters())
        raise SystemExit(f"nothing to train: {frozen} parameters, all frozen or none registered")
    matrices = [p for p in trainable.values() if p.ndim >= 2]
    vectors = [p for p in trainable.values() if p.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=lr)


# end: groups
