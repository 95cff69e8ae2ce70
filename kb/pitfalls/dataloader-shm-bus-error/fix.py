"""What a DataLoader needs of /dev/shm, compared with what is there."""

# part: check
import os
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.utils.data import DataLoader


def tensor_bytes(batch: Any) -> int:
    """Bytes of all tensors in a nested batch."""
    if isinstance(batch, torch.Tensor):
        return batch.numel() * batch.element_size()
    if isinstance(batch, Mapping):
        return sum(tensor_bytes(part) for part in batch.values())
    if isinstance(batch, Iterable) and not isinstance(batch, (str, bytes)):
        return sum(tensor_bytes(part) for part in batch)
    return 0


def check_shared_memory(loader: DataLoader, ranks_on_host: int = 1) -> None:
    """Stop before the first step if the loader's batches cannot fit into /dev/shm."""
    rows = [loader.dataset[i] for i in range(loader.batch_size)]
    batch_bytes = tensor_bytes(loader.collate_fn(rows))
    in_flight = loader.num_workers * (loader.prefetch_factor or 0) + 2
    needed = batch_bytes * in_flight * ranks_on_host
    shm = os.statvfs("/dev/shm")
    free = shm.f_bavail * shm.f_frsize
    if loader.num_workers and needed > free:
        raise SystemExit(
            f"/dev/shm has {free >> 20} MiB free, this loader may need {needed >> 20} MiB"
        )


# end: check
