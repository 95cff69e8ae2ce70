"""One file of the data set was cut short on its way; a worker reads it."""

import gzip
import io
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Arrays(Dataset):
    def __init__(self, folder):
        self.paths = sorted(folder.glob("*.npy.gz"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with gzip.open(self.paths[index]) as file:
            return torch.from_numpy(np.load(io.BytesIO(file.read())))


# part: fixed
class Tolerant(Dataset):
    """Takes the next sample when one is damaged; stops when more than 1 % are."""

    def __init__(self, inner: Dataset) -> None:
        self.inner = inner
        self.bad: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, index: int):
        for step in range(100):
            position = (index + step) % len(self.inner)
            try:
                return self.inner[position]
            except (OSError, EOFError, SyntaxError) as error:
                if position not in self.bad:
                    names = getattr(self.inner, "paths", range(len(self.inner)))
                    print(f"left out: {names[position]}", flush=True)
                self.bad[position] = str(error)
                if len(self.bad) > max(10, len(self.inner) // 100):
                    raise
        raise OSError(f"100 damaged samples in a row from {index}")


# end: fixed


def write_samples(folder):
    for number in range(8):
        packed = io.BytesIO()
        np.save(packed, np.full((64, 64), number, dtype=np.float32))
        (folder / f"{number:03}.npy.gz").write_bytes(gzip.compress(packed.getvalue()))
    cut = folder / "000.npy.gz"
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])


if __name__ == "__main__":
    root = Path(tempfile.mkdtemp())
    write_samples(root)
    arrays = Tolerant(Arrays(root)) if "--fixed" in sys.argv else Arrays(root)
    for batch in DataLoader(arrays, batch_size=4, num_workers=1):
        print(f"batch of {len(batch)}, mean {batch.mean():.2f}")
    print("ran to its end")
