"""The captured training step reads its loss, for the log."""

import sys
from collections.abc import Callable

import torch
from torch import nn


def capture_step_with_its_log(model, loss_fn, optimizer, x, y):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
        print(f"loss {loss.item():.4f}")
    return lambda x, y: graph.replay()


# part: fixed
def capture_step(
    model: nn.Module,
    loss_fn: Callable[..., torch.Tensor],
    optimizer: torch.optim.Optimizer,
    x: torch.Tensor,
    y: torch.Tensor,
) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
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


# end: fixed

if __name__ == "__main__":
    model = nn.Linear(4, 1).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), capturable=True)
    x, y = torch.rand(8, 4, device="cuda"), torch.rand(8, 1, device="cuda")
    nn.functional.mse_loss(model(x), y).backward()  # the libraries are in use before
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if "--fixed" in sys.argv:
        step = capture_step(model, nn.functional.mse_loss, optimizer, x, y)
        for _ in range(3):
            print(f"loss {step(x, y).item():.4f}")  # read after the replay
    else:
        step = capture_step_with_its_log(model, nn.functional.mse_loss, optimizer, x, y)
        step(x, y)
    print("ran to its end")
