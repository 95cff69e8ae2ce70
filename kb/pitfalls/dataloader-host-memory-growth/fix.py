"""Indexes that forked workers can read without copying them."""

import pickle
from collections.abc import Iterable
from typing import Any

import numpy as np


# part: records
class PackedRecords:
    """A list of any picklable records (dicts, annotations) in two arrays."""

    def __init__(self, records: Iterable[Any]) -> None:
        packed = [pickle.dumps(record, protocol=-1) for record in records]
        self._ends = np.cumsum([len(part) for part in packed], dtype=np.int64)
        self._bytes = np.frombuffer(b"".join(packed), dtype=np.uint8)

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, index: int) -> Any:
        start = self._ends[index - 1] if index else 0
        return pickle.loads(self._bytes[start : self._ends[index]].tobytes())


# in the dataset: self.annotations = PackedRecords(annotations)
# end: records
