"""A shared layer below two reentrant activation checkpoints, under DDP."""

import os
import sys
import tempfile

import torch
import torch._dynamo  # by DDP: once here, and not in each rank
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint


def run_reentrant(block, hidden):
    return checkpoint(block, hidden, use_reentrant=True)


# part: fixed
def run_checkpointed(block: nn.Module, hidden: torch.Tensor) -> torch.Tensor:
    """Recomputes the block inside the one backward pass, not in a backward of its own."""
    return checkpoint(block, hidden, use_reentrant=False)


# end: fixed


class Encoder(nn.Module):
    def __init__(self, run):
        super().__init__()
        self.embed = nn.Linear(2, 2)
        self.block = nn.Linear(2, 2)  # used twice, as layers that share their weights are
        self.run = run

    def forward(self, x):
        hidden = self.embed(x)
        return self.run(self.block, self.run(self.block, hidden))


if __name__ == "__main__":
    store = f"file://{tempfile.mkdtemp()}/store"
    rank = 0 if os.fork() else 1
    dist.init_process_group("gloo", store, rank=rank, world_size=2)
    run = run_checkpointed if "--fixed" in sys.argv else run_reentrant
    model = DistributedDataParallel(Encoder(run))
    for step in range(2):
        loss = model(torch.ones(1, 2)).sum()
        loss.backward()
        print(f"rank {rank} step {step} loss {loss.item():.4f}\n", end="", flush=True)
    dist.destroy_process_group()
    if rank == 0 and os.wait()[1] == 0:
        print("ran to its end")
