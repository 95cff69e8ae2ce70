"""Workers that stay on the CPU, or that open the GPU only in a fresh process."""

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset


# part: loop
def batches_on(device: torch.device, loader: DataLoader) -> Iterator[Any]:
    """The loader's batches, moved to the device by the training process."""
    for images, labels in loader:
        yield images.to(device, non_blocking=True), labels.to(device, non_blocking=True)


def build_loader(dataset: Dataset, batch_size: int, num_workers: int) -> DataLoader:
    """`dataset[i]` must return CPU tensors; pinned memory makes non_blocking worth its name."""
    return DataLoader(
        dataset,
        batch_size=batch_size,
        num_workers=num_workers,
        pin_memory=torch.cuda.is_available(),
    )


# end: loop


# part: spawn
class EncodedClips(Dataset):
    """Encodes in the worker; the encoder is built there, never in the parent."""

    def __init__(self, paths: list[str], build_encoder: Any, device: str) -> None:
        self.paths = paths
        self.build_encoder = build_encoder
        self.device = device
        self._encoder: Any = None

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        if self._encoder is None:
            self._encoder = self.build_encoder().to(self.device).eval()
        with torch.no_grad():
            return self._encoder(self.paths[index]).cpu()


def build_encoding_loader(dataset: EncodedClips, batch_size: int) -> DataLoader:
    return DataLoader(
        dataset,
        batch_size=batch_size,
        num_workers=2,
        multiprocessing_context="spawn",
        persistent_workers=True,
    )


# end: spawn
