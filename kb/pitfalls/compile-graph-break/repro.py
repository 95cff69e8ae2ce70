"""A compiled step branches on a value; the whole step is asked for as one graph."""

import sys

import torch


# part: fixed
def step(x: torch.Tensor) -> torch.Tensor:
    """Both branches are computed, the value chooses: one graph, no jump."""
    return torch.where(x.sum() > 0, x * 2, x - 1)


# end: fixed


def branching_step(x):
    return x * 2 if x.sum() > 0 else x - 1


function = step if "--fixed" in sys.argv else branching_step
compiled = torch.compile(function, fullgraph=True, backend="eager")
for sign in (1, -1):
    print(f"mean {compiled(sign * torch.ones(3)).mean():.1f}")
print("ran to its end")
