"""Rank 0 tokenises for longer than the others wait for it in a barrier."""

import os
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta

import torch.distributed as dist

GROUP_TIMEOUT = timedelta(seconds=8)
WORK_S = 11
FILES = 44


def tokenise():
    started, words = time.monotonic(), 0
    for done in range(1, FILES + 1):
        while time.monotonic() < started + done * WORK_S / FILES:
            words += len("a line of the corpus".split())
        bar = f"{'#' * (done // 4):11}| {done}/{FILES} [00:{done * WORK_S // FILES:02d}<00:"
        left = (FILES - done) * WORK_S // FILES
        print(f"Tokenising: {100 * done // FILES:3d}%|{bar}{left:02d},  4.00it/s]", flush=True)


def build_while_the_training_group_waits(build):
    if dist.get_rank() == 0:
        build()
    dist.barrier()


# part: fixed
def build_on_rank_0(build: Callable[[], None], limit: timedelta = timedelta(hours=3)) -> None:
    """Rank 0 builds, the others wait in a group of their own, for as long as `limit` allows."""
    patient = dist.new_group(backend="gloo", timeout=limit)  # a collective: all ranks call it
    if dist.get_rank() == 0:
        build()
    dist.barrier(group=patient)  # no GPU work waits; the training group keeps its short timeout


# end: fixed

if __name__ == "__main__":
    store = f"file://{tempfile.mkdtemp()}/store"
    rank = 0 if os.fork() else 1
    dist.init_process_group("gloo", store, rank=rank, world_size=2, timeout=GROUP_TIMEOUT)
    dist.barrier()  # both begin at the same moment
    run = build_on_rank_0 if "--fixed" in sys.argv else build_while_the_training_group_waits
    run(tokenise)
    dist.destroy_process_group()
    if rank == 0 and os.wait()[1] == 0:
        print("ran to its end")
