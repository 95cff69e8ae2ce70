"""Another thread holds a lock at the moment in which the workers are forked."""

import argparse
import threading
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

client_lock = threading.Lock()  # stands in a tokenizer, a client or a pool of connections


class Samples(Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        with client_lock:
            return torch.tensor(index)


# part: fixed
def build_loader(dataset: Dataset, batch_size: int, num_workers: int, **options: Any) -> DataLoader:
    """A loader that starts fresh worker processes and reports a hang instead of sleeping."""
    if num_workers > 0:
        options.setdefault("multiprocessing_context", "spawn")
        options.setdefault("persistent_workers", True)
        options.setdefault("timeout", 300)
    return DataLoader(dataset, batch_size=batch_size, num_workers=num_workers, **options)


# end: fixed

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--num-workers", type=int, default=1)
    args = parser.parse_args()
    if args.fixed:
        loader = build_loader(Samples(), 2, args.num_workers)
    else:
        loader = DataLoader(
            Samples(), 2, num_workers=args.num_workers, multiprocessing_context="fork"
        )
    with client_lock:  # as another thread would hold it
        batches = iter(loader)
    print(f"{sum(1 for _ in batches)} batches")
    print("ran to its end")
