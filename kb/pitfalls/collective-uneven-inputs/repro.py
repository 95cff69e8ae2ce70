"""Rank 0 holds one batch more than rank 1, and every step is an all-reduce of DDP."""

import os
import sys
import tempfile
from collections.abc import Iterable
from datetime import timedelta

import torch
import torch._dynamo  # by DDP: once here, and not in each rank
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel


def train_each_for_itself(model, optimizer, batches):
    for step, batch in enumerate(batches, 1):
        optimizer.zero_grad(set_to_none=True)
        model(batch).mean().backward()
        optimizer.step()
        print(f"rank {dist.get_rank()} step {step}", flush=True)


# part: fixed
def train_until_all_are_through(
    model: DistributedDataParallel,
    optimizer: torch.optim.Optimizer,
    batches: Iterable[torch.Tensor],
) -> None:
    """Ranks may hold different numbers: who is through shadows the others' collectives."""
    with Join([model]):
        for step, batch in enumerate(batches, 1):
            optimizer.zero_grad(set_to_none=True)
            model(batch).mean().backward()
            optimizer.step()
            print(f"rank {dist.get_rank()} step {step}", flush=True)


# end: fixed

if __name__ == "__main__":
    store = f"file://{tempfile.mkdtemp()}/store"
    rank = 0 if os.fork() else 1
    dist.init_process_group("gloo", store, rank=rank, world_size=2, timeout=timedelta(seconds=5))
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    batches = torch.rand(9, 2, 4)[rank::2]  # a strided shard: 5 batches here, 4 there
    train = train_until_all_are_through if "--fixed" in sys.argv else train_each_for_itself
    train(model, optimizer, batches)
    print(f"rank {rank} finished {len(batches)} batches", flush=True)
    dist.barrier()
    dist.destroy_process_group()
    if rank == 0 and os.wait()[1] == 0:
        print("ran to its end")
