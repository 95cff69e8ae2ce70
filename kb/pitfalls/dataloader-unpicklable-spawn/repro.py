"""A dataset that holds a lambda and an open file goes to a worker that is spawned."""

import sys
import tempfile

from torch.utils.data import DataLoader

# part: fixed
from functools import partial
from typing import Any

import torch
from torch.utils.data import Dataset


def scale(image: torch.Tensor, factor: float) -> torch.Tensor:
    """The image times `factor`; at module level, so that a worker finds it by name."""
    return image * factor


class Records(Dataset):
    """Holds a path and plain values; the file is opened by the process that reads it."""

    def __init__(self, path: str, length: int, factor: float) -> None:
        self.path = path
        self.length = length
        self.transform = partial(scale, factor=factor)  # instead of lambda x: x * factor
        self._file: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_file": None}

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        if self._file is None:
            self._file = open(self.path, "rb")
        self._file.seek(4 * index)
        row = torch.frombuffer(bytearray(self._file.read(4)), dtype=torch.float32)
        return self.transform(row)


# end: fixed


class OpenRecords(Records):
    def __init__(self, path, length, factor):
        super().__init__(path, length, factor)
        self.transform = lambda row: row * factor
        self._file = open(path, "rb")

    def __getstate__(self):
        return self.__dict__


if __name__ == "__main__":
    with tempfile.NamedTemporaryFile(delete=False) as file:
        file.write(torch.arange(8, dtype=torch.float32).numpy().tobytes())
    records = (Records if "--fixed" in sys.argv else OpenRecords)(file.name, 8, 0.5)
    loader = DataLoader(records, batch_size=4, num_workers=1, multiprocessing_context="spawn")
    for batch in loader:
        print(f"mean {batch.mean():.2f}")
    print("ran to its end")
