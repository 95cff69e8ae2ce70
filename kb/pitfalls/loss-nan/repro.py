"""A distance of zero: the gradient of its square root is infinite."""

import sys

import torch


def distance_of(a, b):
    return torch.sqrt((a - b).pow(2).sum(-1))


# part: fixed
def safe_distance_of(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The gradient of sqrt at 0 is infinite, and 0 * inf is nan: the epsilon stands inside."""
    return torch.sqrt((a - b).pow(2).sum(-1) + 1e-8)


# end: fixed

distance = safe_distance_of if "--fixed" in sys.argv else distance_of
anchor = torch.tensor([[0.5, 0.5], [1.0, 2.0]], requires_grad=True)
match = torch.tensor([[0.5, 0.5], [1.5, 2.5]])  # the first pair is equal
with torch.autograd.set_detect_anomaly(True):
    for step in range(3):
        loss = distance(anchor, match).mean()
        loss.backward()
        print(f"step {step} loss {loss.item():.4f}")
print("ran to its end")
