"""Rank 0 saves and waits at a barrier that the other ranks never come to."""

import argparse
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def save_and_wait(weights, path, rank):
    if rank == 0:
        torch.save(weights, path.with_suffix(".partial"))
        dist.barrier()  # only rank 0 comes here
        path.with_suffix(".partial").rename(path)
    while not path.exists():
        time.sleep(0.5)


# part: fixed
def save_on_one_rank(weights: torch.Tensor, path: Path, rank: int) -> None:
    """Only the side effect stands under the condition; every rank takes part in the collective."""
    if rank == 0:
        torch.save(weights, path)
    dist.barrier()


# end: fixed


def train(rank, world_size, folder, save):
    dist.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=world_size)
    weights = torch.ones(4)
    dist.all_reduce(weights)
    save(weights, Path(folder) / "last.pt", rank)
    dist.all_reduce(weights)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--world-size", type=int, default=2)
    args = parser.parse_args()
    save = save_on_one_rank if args.fixed else save_and_wait
    ranks = (args.world_size, tempfile.mkdtemp(), save)
    mp.start_processes(train, ranks, nprocs=args.world_size, start_method="fork")
    print("ran to its end")
