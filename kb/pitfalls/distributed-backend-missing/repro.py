"""A script for GPUs asks for NCCL, and this build of torch has none."""

import os
import sys

import torch
import torch.distributed as dist


def init_for_gpus():
    dist.init_process_group("nccl")
    return "nccl"


# part: fixed
def init_distributed() -> str:
    """Create the default group and return its backend: NCCL with GPUs on Linux, else gloo."""
    use_nccl = torch.cuda.is_available() and dist.is_nccl_available()
    backend = "nccl" if use_nccl else "gloo"
    dist.init_process_group(backend)
    return backend


# end: fixed

if __name__ == "__main__":
    # As a launcher of one process sets them.
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    backend = init_distributed() if "--fixed" in sys.argv else init_for_gpus()
    total = torch.ones(1)
    dist.all_reduce(total)
    print(f"{backend} group of {int(total)}")
    dist.destroy_process_group()
    print("ran to its end")
