"""A model snapshot fetched by one process per host."""

from __future__ import annotations

# part: first
import os
from datetime import timedelta

import torch.distributed as dist
from huggingface_hub import snapshot_download


def fetch(repo: str) -> str:
    """Folder of the snapshot; local rank 0 downloads, the others read the cache."""
    group = dist.new_group(backend="gloo", timeout=timedelta(hours=2))
    if int(os.environ["LOCAL_RANK"]) == 0:
        snapshot_download(repo, etag_timeout=30, max_workers=4)
    dist.barrier(group)
    return snapshot_download(repo, local_files_only=True)


# end: first
