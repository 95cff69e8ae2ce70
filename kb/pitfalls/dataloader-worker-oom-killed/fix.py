"""Loaders that stay within a memory budget."""

import os
from pathlib import Path
from typing import Any

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
