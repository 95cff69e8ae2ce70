"""Damaged images: found beforehand, or skipped with a count."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from PIL import Image
from torch.utils.data import Dataset


# part: scan
def problem_of(path: Path) -> str | None:
    """Why the image cannot be decoded, or None."""
    try:
        with Image.open(path) as image:
            image.load()  # verify() alone does not notice a missing tail
    except (OSError, SyntaxError, ValueError) as error:
        return f"{path}: {error}"
    return None


def scan(root: Path, processes: int = 8) -> list[str]:
    """All damaged images below `root`."""
    files = [p for p in root.rglob("*") if p.suffix.lower() in {".jpg", ".jpeg", ".png"}]
    with ProcessPoolExecutor(processes) as pool:
        return [line for line in pool.map(problem_of, files, chunksize=256) if line]


# end: scan


# part: dataset
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
            except (OSError, SyntaxError) as error:
                self.bad[position] = str(error)
                if len(self.bad) > max(10, len(self.inner) // 100):
                    raise
        raise OSError(f"100 damaged samples in a row from {index}")


# end: dataset
