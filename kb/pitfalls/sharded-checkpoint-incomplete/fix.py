"""Sharded saving that never leaves half a checkpoint under a good name."""

from __future__ import annotations

# part: save
import os
from pathlib import Path
from typing import Any

import torch.distributed as dist
import torch.distributed.checkpoint as dcp


def save_checkpoint(state: dict[str, Any], root: Path, step: int) -> Path:
    """Write `state` from all ranks; the final name exists only if every rank had finished."""
    final = root / f"step_{step:08d}"
    partial = root / f"{final.name}.partial"
    dcp.save(state, checkpoint_id=str(partial))  # all ranks
    dist.barrier()
    if dist.get_rank() == 0:
        os.replace(partial, final)  # needs one file system for both names
    dist.barrier()
    return final


# end: save
