"""A list of samples that is never silently empty."""

from __future__ import annotations

# part: check
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


# end: check
