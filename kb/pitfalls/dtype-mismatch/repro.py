"""Features computed by NumPy in float64 go into a model of float32."""

import sys

import numpy as np
import torch
from torch import nn


# part: fixed
def to_batch(
    features: np.ndarray, labels: np.ndarray, model: nn.Module
) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs in the dtype of the model's parameters, class indices in int64."""
    like = next(model.parameters())
    inputs = torch.as_tensor(features).to(device=like.device, dtype=like.dtype)
    return inputs, torch.as_tensor(labels).to(device=like.device, dtype=torch.int64)


# end: fixed

features = np.linspace(0, 1, 32).reshape(4, 8)  # float64, as NumPy makes it
labels = np.array([0, 1, 1, 0], dtype=np.int32)
model = nn.Linear(8, 2)
if "--fixed" in sys.argv:
    inputs, targets = to_batch(features, labels, model)
else:
    inputs, targets = torch.from_numpy(features), torch.from_numpy(labels)
loss = nn.functional.cross_entropy(model(inputs), targets)
loss.backward()
print(f"loss {loss.item():.3f}")
print("ran to its end")
