"""Give descriptors back, or allow more of them."""

from collections.abc import Mapping
from typing import Any

import torch


# part: copy
def own_copy(batch: Any) -> Any:
    """The batch in memory of its own, so that the workers' shared files can be closed."""
    if isinstance(batch, torch.Tensor):
        return batch.clone()
    if isinstance(batch, Mapping):
        return {key: own_copy(part) for key, part in batch.items()}
    if isinstance(batch, (list, tuple)):
        return [own_copy(part) for part in batch]
    return batch


# kept = [own_copy(batch) for batch in loader]
# end: copy


# part: limit
import resource


def raise_open_files_limit(wanted: int = 65536) -> int:
    """Lift the soft limit of open files, as far as the hard limit allows; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < target:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


raise_open_files_limit()  # before the first DataLoader: workers inherit it
# end: limit
