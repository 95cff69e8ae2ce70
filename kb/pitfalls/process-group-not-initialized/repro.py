"""A script written for the launcher runs as a plain Python process."""

import sys

# part: fixed
import contextlib
import os
from collections.abc import Iterator

import torch
import torch.distributed as dist


@contextlib.contextmanager
def process_group() -> Iterator[bool]:
    """The default group while the block runs; yields False in a run without a launcher."""
    if "RANK" not in os.environ or dist.is_initialized():
        yield dist.is_initialized()
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    try:
        yield True
    finally:
        dist.destroy_process_group()


def barrier() -> None:
    """A barrier that does nothing in a run of one process."""
    if dist.is_available() and dist.is_initialized():
        dist.barrier()


# end: fixed

if __name__ == "__main__":
    if "--fixed" in sys.argv:
        with process_group() as is_distributed:
            barrier()
            print(f"distributed: {is_distributed}")
    else:
        dist.barrier()
    print("ran to its end")
