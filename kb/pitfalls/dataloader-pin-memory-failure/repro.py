"""The dataset holds tensors of the GPU, and the loader is to pin its batches."""

import sys

# part: fixed
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset


def _tensors(batch: Any) -> Iterator[torch.Tensor]:
    if isinstance(batch, torch.Tensor):
        yield batch
    elif isinstance(batch, Mapping):
        for part in batch.values():
            yield from _tensors(part)
    elif isinstance(batch, (list, tuple)):
        for part in batch:
            yield from _tensors(part)


def build_loader(dataset: Dataset, **options: Any) -> DataLoader:
    """Pins if there is a GPU and a sample consists of dense CPU tensors."""
    pinnable = all(
        tensor.device.type == "cpu" and tensor.layout == torch.strided
        for tensor in _tensors(dataset[0])
    )
    return DataLoader(dataset, pin_memory=pinnable and torch.cuda.is_available(), **options)


# end: fixed

if __name__ == "__main__":
    dataset = TensorDataset(torch.rand(8, 4, device="cuda"))
    if "--fixed" in sys.argv:
        loader = build_loader(dataset, batch_size=4)
    else:
        loader = DataLoader(dataset, batch_size=4, pin_memory=True)
    print(f"{sum(1 for _ in loader)} batches")
    print("ran to its end")
