"""Rank 0 alone evaluates, and the evaluation holds a collective."""

import argparse
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def evaluate(weights: torch.Tensor) -> float:
    total = weights.clone()
    dist.all_reduce(total)  # the mean over all ranks' part of the validation data
    return total.mean().item() / dist.get_world_size()


def report_by_rank_0(weights, rank):
    if rank == 0:
        print(f"validation loss {evaluate(weights):.2f}")


# part: fixed
def report(weights: torch.Tensor, rank: int) -> None:
    """Every rank evaluates; only the side effect stands under the condition."""
    loss = evaluate(weights)
    if rank == 0:
        print(f"validation loss {loss:.2f}")


# end: fixed


def train(rank, world_size, folder, end_of_epoch):
    dist.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=world_size)
    weights = torch.ones(4)
    dist.broadcast(weights, 0)
    end_of_epoch(weights, rank)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--world-size", type=int, default=2)
    args = parser.parse_args()
    ranks = (args.world_size, tempfile.mkdtemp(), report if args.fixed else report_by_rank_0)
    mp.start_processes(train, ranks, nprocs=args.world_size, start_method="fork")
    print("ran to its end")
