"""Two ranks shuffle with the same seed, and no sampler splits the data between them."""

import argparse
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.utils.data import Dataset, TensorDataset

# part: fixed
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def build_loader(dataset: Dataset, batch_per_rank: int) -> DataLoader:
    """A loader for this rank's share; call `loader.sampler.set_epoch(epoch)` in each epoch."""
    sampler = DistributedSampler(dataset, shuffle=True, drop_last=True)  # one seed for all ranks
    return DataLoader(dataset, batch_size=batch_per_rank, sampler=sampler)


# end: fixed


def build_whole(dataset, batch_per_rank):
    return DataLoader(dataset, batch_size=batch_per_rank, shuffle=True)


def train(rank, world_size, folder, build):
    dist.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=world_size)
    torch.manual_seed(0)
    loader = build(TensorDataset(torch.arange(64)), 8)
    ids = next(iter(loader))[0].tolist()
    for turn in range(world_size):
        if turn == rank:
            print(f"[rank{rank}] {len(loader)} batches, sample ids {ids}", flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--world-size", type=int, default=2)
    args = parser.parse_args()
    ranks = (args.world_size, tempfile.mkdtemp(), build_loader if args.fixed else build_whole)
    mp.start_processes(train, ranks, nprocs=args.world_size, start_method="fork")
    print("ran to its end")
