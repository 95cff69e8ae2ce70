"""Settings from a configuration that hold more than fits: a sampler beside shuffle, no workers."""

import sys

import torch
from torch.utils.data import TensorDataset, WeightedRandomSampler

# part: fixed
from typing import Any

from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler


def build_loader(
    dataset: Dataset,
    batch_size: int,
    *,
    shuffle: bool = False,
    sampler: Sampler | None = None,
    num_workers: int = 0,
    prefetch_factor: int = 2,
    timeout_s: float = 300,
    **options: Any,
) -> DataLoader:
    """A loader from settings that may hold more than applies: the rest is left out."""
    if isinstance(dataset, IterableDataset):
        if sampler is not None:
            raise ValueError("an IterableDataset brings its own order: it takes no sampler")
    elif sampler is not None:
        options["sampler"] = sampler  # shuffle belongs to the sampler
    else:
        options["shuffle"] = shuffle
    if num_workers > 0:
        options.update(prefetch_factor=prefetch_factor, persistent_workers=True, timeout=timeout_s)
    return DataLoader(dataset, batch_size=batch_size, num_workers=num_workers, **options)


# end: fixed

if __name__ == "__main__":
    rows = TensorDataset(torch.arange(16))
    settings = {
        "batch_size": 4,
        "shuffle": True,
        "sampler": WeightedRandomSampler(torch.ones(16), 16),
        "num_workers": 0,
        "drop_last": True,
    }
    build = build_loader if "--fixed" in sys.argv else DataLoader
    print(f"{len(list(build(rows, **settings)))} batches")
    print("ran to its end")
