"""Both branches are computed, the value chooses: one graph, no jump."""

# part: fixed
import torch


def step(x: torch.Tensor) -> torch.Tensor:
    # instead of: return x * 2 if x.sum() > 0 else x - 1
    return torch.where(x.sum() > 0, x * 2, x - 1)


compiled = torch.compile(step, fullgraph=True)
# end: fixed
