"""DDP is given device_ids while the module's parameters are still on the CPU."""

import sys
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def wrap_where_it_is(model, local_rank):
    return DistributedDataParallel(model, device_ids=[local_rank])


# part: fixed
def move_and_wrap(model: nn.Module, local_rank: int) -> DistributedDataParallel:
    """On its device first, wrapped second; device_ids only where that device is a GPU.

    Build the optimizer afterwards, on the parameters that were moved.
    """
    if not torch.cuda.is_available():
        return DistributedDataParallel(model)
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    return DistributedDataParallel(model.to(device), device_ids=[local_rank])


# end: fixed

if __name__ == "__main__":
    store = f"file://{tempfile.mkdtemp()}/store"
    dist.init_process_group("gloo", store, rank=0, world_size=1)
    wrap = move_and_wrap if "--fixed" in sys.argv else wrap_where_it_is
    model = wrap(nn.Linear(4, 2), local_rank=0)
    model(torch.ones(1, 4)).sum().backward()
    dist.destroy_process_group()
    print("ran to its end")
