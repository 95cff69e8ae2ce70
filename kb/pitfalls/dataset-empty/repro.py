"""The pattern asks for .jpg, the camera wrote .JPG."""

import sys
import tempfile

from torch.utils.data import DataLoader

# part: fixed
from pathlib import Path

IMAGE_ENDINGS = {".jpg", ".jpeg", ".png", ".webp"}


def list_samples(root: Path, *, least: int = 1) -> list[Path]:
    """Sorted image files below `root`; stops with what was searched if there are too few."""
    if not root.is_dir():
        raise SystemExit(f"{root.resolve()} is no folder on this host")
    files = sorted(p for p in root.rglob("*") if p.suffix.lower() in IMAGE_ENDINGS)
    if len(files) < least:
        there = sorted({p.suffix for p in root.rglob("*") if p.is_file()})[:10]
        raise SystemExit(
            f"{len(files)} samples below {root.resolve()}, expected at least {least}; "
            f"wanted {sorted(IMAGE_ENDINGS)}, found endings {there}"
        )
    return files


# end: fixed

if __name__ == "__main__":
    folder = Path(tempfile.mkdtemp())
    for number in range(8):
        (folder / f"IMG_{number:04}.JPG").touch()
    samples = list_samples(folder) if "--fixed" in sys.argv else sorted(folder.glob("*.jpg"))
    names = [path.name for path in samples]
    print(f"{len(list(DataLoader(names, batch_size=4, shuffle=True)))} batches")
    print("ran to its end")
