from __future__ import annotations

import os

import torch


# part: device
def own_device() -> torch.device:
    """The GPU of this process by LOCAL_RANK, or an error that says what is missing."""
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    count = torch.cuda.device_count()
    if local_rank >= count:
        build = torch.version.cuda or torch.version.hip or "a CPU-only build"
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "not set")
        raise RuntimeError(
            f"local rank {local_rank} but {count} GPUs visible "
            f"(torch {torch.__version__}, {build}, CUDA_VISIBLE_DEVICES {visible})"
        )
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


# end: device
