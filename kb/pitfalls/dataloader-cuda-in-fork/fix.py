"""Workers that open the GPU only in a fresh process."""

from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset


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
