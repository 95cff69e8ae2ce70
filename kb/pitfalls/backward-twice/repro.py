"""The state of a recurrent model goes from one window of a long sequence to the next."""

import sys

import torch
from torch import nn


# part: fixed
def cut_graph(
    state: torch.Tensor | tuple[torch.Tensor, ...],
) -> torch.Tensor | tuple[torch.Tensor, ...]:
    """The state's values without their history (an LSTM's state is a pair)."""
    return tuple(part.detach() for part in state) if isinstance(state, tuple) else state.detach()


def train_over(model: nn.Module, windows: torch.Tensor, state: torch.Tensor) -> None:
    """One backward pass a window; no gradient reaches the window before."""
    for window in windows:
        output, state = model(window, cut_graph(state))
        loss = output.pow(2).mean()
        loss.backward()


# end: fixed


def train_through(model, windows, state):
    for window in windows:
        output, state = model(window, state)
        loss = output.pow(2).mean()
        loss.backward()


train = train_over if "--fixed" in sys.argv else train_through
train(nn.GRU(8, 8), torch.rand(4, 16, 2, 8), torch.zeros(1, 2, 8))
print("ran to its end")
