"""Two ranks on one GPU."""

import os
import sys
import tempfile

import torch
import torch.distributed as dist


# part: fixed
def backend_for(ranks_on_this_host: int) -> str:
    """NCCL wants a GPU for each rank; where ranks share one, as in tests, gloo takes its tensors."""
    return "nccl" if ranks_on_this_host <= torch.cuda.device_count() else "gloo"


# end: fixed

if __name__ == "__main__":
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"
    store = f"file://{tempfile.mkdtemp()}/store"
    rank = 0 if os.fork() else 1
    backend = backend_for(2) if "--fixed" in sys.argv else "nccl"
    dist.init_process_group(backend, store, rank=rank, world_size=2)
    total = torch.ones(1, device="cuda:0")
    dist.all_reduce(total)
    print(f"rank {rank} sees {int(total.item())} ranks\n", end="", flush=True)
    dist.destroy_process_group()
    if rank == 0 and os.wait()[1] == 0:
        print("ran to its end")
