"""DataLoaders whose workers cannot inherit a locked lock."""

import threading
from typing import Any

from torch.utils.data import DataLoader, Dataset


# part: lazy
class LazyResources(Dataset):
    """Opens locks, clients and files in the process that uses them, never before a fork."""

    def __init__(self, rows: list[str]) -> None:
        self.rows = rows
        self._lock: Any = None

    @property
    def lock(self) -> Any:
        if self._lock is None:
            self._lock = threading.Lock()  # a client, tokenizer or database handle alike
        return self._lock

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> int:
        with self.lock:
            return len(self.rows[index])


# end: lazy
