"""Datasets that can be sent to a spawned worker."""

import pickle
from functools import partial
from typing import Any

import torch
from torch.utils.data import Dataset


# part: dataset
def scale(image: torch.Tensor, factor: float) -> torch.Tensor:
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


# end: dataset


# part: search
def unpicklable_attributes(thing: object) -> dict[str, str]:
    """Names of the attributes that pickle refuses, with its reason."""
    state = thing.__getstate__() if hasattr(thing, "__getstate__") else vars(thing)
    refused = {}
    for name, value in (state or {}).items():
        try:
            pickle.dumps(value)
        except Exception as error:
            refused[name] = f"{type(error).__name__}: {error}"
    return refused


# end: search
