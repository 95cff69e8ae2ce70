"""Moving batches to an Apple GPU without dtypes that it lacks."""

from __future__ import annotations

import torch

# part: dtype
NARROWER = {torch.float64: torch.float32, torch.complex128: torch.complex64}


def to_device(batch: dict[str, torch.Tensor], device: torch.device) -> dict[str, torch.Tensor]:
    """The batch on `device`; on MPS in dtypes that the framework has."""
    if device.type != "mps":
        return {name: tensor.to(device) for name, tensor in batch.items()}
    return {
        name: tensor.to(NARROWER.get(tensor.dtype, tensor.dtype)).to(device)
        for name, tensor in batch.items()
    }


# end: dtype
