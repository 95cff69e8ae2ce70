"""A process group on whatever backend this build of torch has."""

from __future__ import annotations

# part: backend
import torch
import torch.distributed as dist


def init_distributed() -> str:
    """Create the default group and return its backend: NCCL with GPUs on Linux, else gloo."""
    use_nccl = torch.cuda.is_available() and dist.is_nccl_available()
    backend = "nccl" if use_nccl else "gloo"
    dist.init_process_group(backend)
    return backend


# end: backend
