"""A device mesh whose data-parallel size follows from the ranks."""

from __future__ import annotations

# part: layout
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh


def make_mesh(device: str, *, tensor: int, pipeline: int, heads: int, layers: int) -> DeviceMesh:
    """The mesh (pipeline, data, tensor); says in one line which size does not fit."""
    ranks = dist.get_world_size()
    problems = [
        f"{what} {whole} is not divisible by {name} {part}"
        for what, whole, name, part in (
            ("ranks", ranks, "tensor x pipeline", tensor * pipeline),
            ("attention heads", heads, "tensor", tensor),
            ("layers", layers, "pipeline", pipeline),
        )
        if whole % part
    ]
    if problems:
        raise SystemExit("parallel layout: " + "; ".join(problems))
    data = ranks // (tensor * pipeline)
    return init_device_mesh(
        device, (pipeline, data, tensor), mesh_dim_names=("pipeline", "data", "tensor")
    )


# end: layout
