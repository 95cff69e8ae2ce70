"""Damaged images, found beforehand."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from PIL import Image


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
