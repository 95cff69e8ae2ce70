"""Loaders that stay within a memory budget."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


# part: budget
def memory_limit_bytes() -> int:
    """The memory this process may use: its container's limit, or the host's memory."""
    limit = Path("/sys/fs/cgroup/memory.max")
    text = limit.read_text().strip() if limit.exists() else "max"
    total_kib = int(Path("/proc/meminfo").read_text().split("MemTotal:")[1].split()[0])
    return min(int(text), total_kib * 1024) if text.isdigit() else total_kib * 1024


def build_loader(
    dataset: Dataset, batch_size: int, worker_bytes: int, ranks_on_host: int, **options: Any
) -> DataLoader:
    """As many workers as fit into half of the memory limit and onto the rank's CPUs."""
    budget = memory_limit_bytes() // 2 // ranks_on_host
    cpus = len(os.sched_getaffinity(0)) // ranks_on_host
    workers = max(0, min(cpus, budget // worker_bytes))
    if workers:
        options.setdefault("prefetch_factor", 1)
    return DataLoader(dataset, batch_size=batch_size, num_workers=workers, **options)


# end: budget


# part: mapped
class MappedRows(Dataset):
    """Rows of a .npy file that stay on disk; all workers share the page cache."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.length = len(np.load(path, mmap_mode="r"))
        self._rows: np.ndarray | None = None

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        if self._rows is None:
            self._rows = np.load(self.path, mmap_mode="r")
        return torch.from_numpy(np.array(self._rows[index]))


# end: mapped
