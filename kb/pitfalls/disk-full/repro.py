"""A checkpoint is written every epoch, on a disk that holds a few of them."""

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import torch


# part: fixed
def save_checkpoint(state: dict[str, Any], folder: Path, step: int, keep: int = 3) -> Path:
    """`folder`/step-N.pt, complete or absent; only the newest `keep` of them stay.

    Raises OSError before anything is written if the newest file would not fit twice.
    """
    folder.mkdir(parents=True, exist_ok=True)
    present = sorted(folder.glob("step-*.pt"), key=lambda p: int(p.stem[5:]))
    needed = 2 * present[-1].stat().st_size if present else 0
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise OSError(f"{folder}: {free >> 20} MiB free, a checkpoint needs {needed >> 20} MiB")
    final = folder / f"step-{step}.pt"
    partial = folder / f"{final.name}.partial"
    try:
        torch.save(state, partial)
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(final)  # atomic on one file system
    finally:
        partial.unlink(missing_ok=True)
    for old in [p for p in present if p != final][: -(keep - 1) or None]:
        old.unlink()
    return final


# end: fixed


def save_each(state, folder, step):
    folder.mkdir(exist_ok=True)
    torch.save(state, folder / f"step-{step}.pt")


save = save_checkpoint if "--fixed" in sys.argv else save_each
for step in range(1, 21):
    save({"step": step, "weights": torch.ones(250_000)}, Path("checkpoints"), step)
    print(f"saved step {step}")
print("ran to its end")
