"""Each worker reads the whole data set into memory of its own, beyond the group's limit."""

import sys

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
            self._rows = np.load(self.path).astype(np.float32)
        return torch.from_numpy(self._rows[index])


if __name__ == "__main__":
    np.save("rows.npy", np.ones((15_000, 10_000), dtype=np.uint8))  # 143 MiB; 572 MiB as floats
    rows = (MappedRows if "--fixed" in sys.argv else ReadRows)("rows.npy")
    loader = DataLoader(rows, batch_size=500, num_workers=2)
    print(f"mean {sum(float(batch.float().mean()) for batch in loader) / len(loader):.1f}")
    print("ran to its end")
