"""A file of 2 GiB is read whole by a process that may allocate 1 GiB more than it has."""

import resource
import sys

# part: fixed
import numpy as np
import torch
from torch.utils.data import Dataset


class MappedRows(Dataset):
    """Rows of an .npy file; workers and ranks of a host share one copy in the page cache."""

    def __init__(self, path: str) -> None:
        self.rows = np.load(path, mmap_mode="r")

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(np.array(self.rows[index], dtype=np.float32))


# end: fixed


class ReadRows(MappedRows):
    def __init__(self, path):
        self.rows = np.load(path)


def allocated_bytes():
    with open("/proc/self/status") as status:
        return next(int(row.split()[1]) << 10 for row in status if row.startswith("VmData"))


if __name__ == "__main__":
    shape = (1 << 20, 512)
    np.lib.format.open_memmap("features.npy", mode="w+", dtype=np.float32, shape=shape)  # a hole
    limit = allocated_bytes() + (1 << 30)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    rows = (MappedRows if "--fixed" in sys.argv else ReadRows)("features.npy")
    print(f"{len(rows)} rows of {len(rows[0])} values")
    print("ran to its end")
