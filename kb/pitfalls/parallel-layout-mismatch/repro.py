"""A configuration for eight ranks, tensor 2 x data 4, in a job of two."""

import os
import sys
import tempfile

# part: fixed
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


# end: fixed

if __name__ == "__main__":
    store = f"file://{tempfile.mkdtemp()}/store"
    rank = 0 if os.fork() else 1
    dist.init_process_group("gloo", store, rank=rank, world_size=2)
    if "--fixed" in sys.argv:
        mesh = make_mesh("cpu", tensor=2, pipeline=1, heads=8, layers=4)
    else:
        names = ("pipeline", "data", "tensor")
        mesh = init_device_mesh("cpu", (1, 4, 2), mesh_dim_names=names)
    print(f"rank {rank} in a mesh of {tuple(mesh.shape)}\n", end="", flush=True)
    dist.destroy_process_group()
    if rank == 0 and os.wait()[1] == 0:
        print("ran to its end")
