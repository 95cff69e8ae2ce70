"""Capturing a training step so that nothing in it breaks the capture."""

from __future__ import annotations

import torch
from torch import nn


# part: capture
def capture_step(model: nn.Module, loss_fn, optimizer, x: torch.Tensor, y: torch.Tensor):
    """A function (x, y) -> loss that replays one captured training step.

    The optimizer must be made with capturable=True; x and y fix the shapes for ever.
    """
    static_x, static_y = x.clone(), y.clone()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # cuBLAS, cuDNN, NCCL and the allocator settle here
        for _ in range(3):
            optimizer.zero_grad(set_to_none=True)
            loss_fn(model(static_x), static_y).backward()
            optimizer.step()
    torch.cuda.current_stream().wait_stream(side)

    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        static_loss = loss_fn(model(static_x), static_y)
        static_loss.backward()
        optimizer.step()

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        static_x.copy_(x)
        static_y.copy_(y)
        graph.replay()
        return static_loss.clone()  # the next replay overwrites static_loss

    return step


# end: capture


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
