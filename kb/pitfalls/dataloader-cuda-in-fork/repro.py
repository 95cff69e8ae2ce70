"""The dataset makes its tensors on the GPU, and its workers are forked."""

import sys

# part: fixed
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset


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


# end: fixed


class Images(Dataset):
    def __init__(self, device):
        self.device = device

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.full((3, 4, 4), float(index), device=self.device), index


if __name__ == "__main__":
    device = torch.device("cuda", 0)
    model = torch.nn.Linear(4, 2).to(device)  # the training process uses CUDA first
    if "--fixed" in sys.argv:
        batches = batches_on(device, build_loader(Images("cpu"), 4, num_workers=1))
    else:
        batches = DataLoader(Images(device), 4, num_workers=1, multiprocessing_context="fork")
    for images, labels in batches:
        print(f"scores of shape {tuple(model(images).shape)} for {len(labels)} labels")
    print("ran to its end")
