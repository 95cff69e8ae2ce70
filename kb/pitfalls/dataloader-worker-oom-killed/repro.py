"""Each worker reads the whole data set into memory of its own, beyond the group's limit."""

import argparse

from torch.utils.data import DataLoader

# part: fixed
import numpy as np
import torch
from torch.utils.data import Dataset


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


# end: fixed


class ReadRows(MappedRows):
    def __getitem__(self, index):
        if self._rows is None:
            self._rows = np.load(self.path)
        return torch.from_numpy(self._rows[index])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--num-workers", type=int, default=8)
    args = parser.parse_args()
    np.save("rows.npy", np.ones((4000, 10_000), dtype=np.float32))  # 153 MiB
    rows = (MappedRows if args.fixed else ReadRows)("rows.npy")
    loader = DataLoader(rows, batch_size=100, num_workers=args.num_workers)
    print(f"mean {sum(float(batch.mean()) for batch in loader) / len(loader):.1f}")
    print("ran to its end")
