"""DataLoaders whose workers cannot inherit a locked lock."""

import threading
from typing import Any

from torch.utils.data import DataLoader, Dataset


# part: spawn
def build_loader(dataset: Dataset, batch_size: int, num_workers: int, **options: Any) -> DataLoader:
    """A loader that starts fresh worker processes and reports a hang instead of sleeping."""
    if num_workers > 0:
        options.setdefault("multiprocessing_context", "spawn")
        options.setdefault("persistent_workers", True)
        options.setdefault("timeout", 300)
    return DataLoader(dataset, batch_size=batch_size, num_workers=num_workers, **options)


# end: spawn


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
