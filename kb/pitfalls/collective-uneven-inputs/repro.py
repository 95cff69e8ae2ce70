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
    for batch in batches:
        optimizer.zero_grad(set_to_none=True)
        model(batch).mean().backward()
        optimizer.step()


# part: fixed
def train_until_all_are_through(
    model: DistributedDataParallel,
    optimizer: torch.optim.Optimizer,
    batches: Iterable[torch.Tensor],
) -> None:
    """Ranks may hold different numbers: who is through shadows the others' collectives."""
    with Join([model]):
        for batch in batches:
            optimizer.zero_grad(set_to_none=True)
            model(batch).mean().backward()
            optimizer.step()


# end: fixed


def say(rank, words):
    print(f"[rank{rank}]: {words}\n", end="", flush=True)  # the line at once, with its end


def counted(batches, rank):
    for step, batch in enumerate(batches, 1):
        say(rank, f"step {step}/{len(batches)}")
        yield batch


if __name__ == "__main__":
    store = f"file://{tempfile.mkdtemp()}/store"
    rank = 0 if os.fork() else 1
    dist.init_process_group("gloo", store, rank=rank, world_size=2, timeout=timedelta(seconds=5))
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    batches = torch.rand(9, 2, 4)[rank::2]  # a strided shard: 5 batches here, 4 there
    train = train_until_all_are_through if "--fixed" in sys.argv else train_each_for_itself
    train(model, optimizer, counted(batches, rank))
    say(rank, f"finished {len(batches)} batches")
    dist.barrier()
    dist.destroy_process_group()
    if rank == 0 and os.wait()[1] == 0:
        print("ran to its end")
