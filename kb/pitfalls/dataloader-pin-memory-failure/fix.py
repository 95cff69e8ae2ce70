"""Pin only what can be pinned."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset


# part: decide
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


# end: decide


# part: batch
@dataclass
class Batch:
    """A batch of variable-length texts; the DataLoader calls pin_memory() on it."""

    tokens: torch.Tensor
    lengths: torch.Tensor

    def pin_memory(self) -> "Batch":
        return Batch(self.tokens.pin_memory(), self.lengths.pin_memory())

    def to(self, device: torch.device) -> "Batch":
        return Batch(
            self.tokens.to(device, non_blocking=True), self.lengths.to(device, non_blocking=True)
        )


# end: batch
