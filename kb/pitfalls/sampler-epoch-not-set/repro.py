"""A shuffled DistributedSampler that nobody tells which epoch it is."""

import sys

import torch
from torch.utils.data import TensorDataset

# part: fixed
from collections.abc import Callable
from typing import Any

from torch.utils.data import DataLoader, DistributedSampler


def train(
    loader: DataLoader, train_step: Callable[[Any], None], epochs: int, first_epoch: int = 0
) -> None:
    """`first_epoch` is the one to resume with; counting from 0 again would repeat orders."""
    for epoch in range(first_epoch, epochs):
        if isinstance(loader.sampler, DistributedSampler):
            loader.sampler.set_epoch(epoch)  # before the loader is iterated
        for batch in loader:
            train_step(batch)


# end: fixed


def train_in_one_order(loader, train_step, epochs):
    for _ in range(epochs):
        for batch in loader:
            train_step(batch)


class Steps:
    """Counts them, and prints the samples of the first batch of each epoch."""

    def __init__(self, per_epoch):
        self.per_epoch, self.done = per_epoch, 0

    def __call__(self, batch):
        epoch, step = divmod(self.done, self.per_epoch)
        self.done += 1
        if step == 0:
            print(f"epoch {epoch} first indices {batch[0].tolist()}")


if __name__ == "__main__":
    rows = TensorDataset(torch.arange(64))
    sampler = DistributedSampler(rows, num_replicas=2, rank=0, shuffle=True)
    batches = DataLoader(rows, batch_size=8, sampler=sampler)
    run = train if "--fixed" in sys.argv else train_in_one_order
    run(batches, Steps(len(batches)), epochs=3)
    print("ran to its end")
