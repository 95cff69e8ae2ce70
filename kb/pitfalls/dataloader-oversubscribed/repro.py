"""More workers than the CPUs that this process may use."""

import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

# part: fixed
import os
from pathlib import Path


def usable_cpus() -> int:
    """CPUs this process may use: its affinity, cut by the container's quota."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota_file = Path("/sys/fs/cgroup/cpu.max")
    if quota_file.exists():
        quota, period = quota_file.read_text().split()
        if quota != "max":
            cpus = min(cpus, max(1, int(quota) // int(period)))
    return cpus


def workers_per_rank(loaders: int = 1, shared: bool = True) -> int:
    """Workers for each of a rank's loaders, one CPU left for the training process.

    `shared`: the ranks of this host share the CPUs (torchrun); not so when the scheduler
    gave each rank CPUs of its own (srun --cpus-per-task).
    """
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if shared else 1
    return max(0, (usable_cpus() // ranks - 1) // loaders)


# end: fixed

if __name__ == "__main__":
    # What a scheduler grants to a task that asked for no more.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    workers = workers_per_rank() if "--fixed" in sys.argv else 4
    loader = DataLoader(TensorDataset(torch.arange(64)), batch_size=8, num_workers=workers)
    print(f"{len(list(loader))} batches from {workers} workers")
    print("ran to its end")
