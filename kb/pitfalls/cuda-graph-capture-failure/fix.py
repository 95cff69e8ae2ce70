"""Training with graphs that torch.compile captures."""

from __future__ import annotations

import torch
from torch import nn


# part: overhead
def train(model: nn.Module, loader, optimizer) -> list[torch.Tensor]:
    """Steps of a model compiled with reduce-overhead; losses are kept as copies."""
    compiled = torch.compile(model, mode="reduce-overhead")
    losses = []
    for batch in loader:
        torch.compiler.cudagraph_mark_step_begin()
        loss = compiled(batch).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.detach().clone())
    return losses


# end: overhead
