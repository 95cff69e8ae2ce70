"""The second rank comes later than the first one waits for it."""

import os
import socket
import sys
import time
from datetime import timedelta

import torch.distributed as dist

LATE_S = 5  # as for an image that is pulled, or imports from slow storage


def join_in_the_groups_timeout(host, port, rank, world_size, timeout):
    dist.init_process_group(
        "gloo", f"tcp://{host}:{port}", rank=rank, world_size=world_size, timeout=timeout
    )


# part: fixed
def join_patiently(
    host: str, port: int, rank: int, world_size: int, timeout: timedelta, backend: str = "gloo"
) -> None:
    """Wait up to half an hour for the last rank; `timeout` counts for the collectives alone."""
    store = dist.TCPStore(
        host, port, world_size, is_master=rank == 0, timeout=timedelta(minutes=30)
    )
    dist.init_process_group(backend, store=store, rank=rank, world_size=world_size, timeout=timeout)


# end: fixed

if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    rank = 0 if os.fork() else 1
    time.sleep(LATE_S * rank)
    join = join_patiently if "--fixed" in sys.argv else join_in_the_groups_timeout
    join("127.0.0.1", port, rank, 2, timeout=timedelta(seconds=2))
    dist.barrier()
    print(f"rank {rank} is there\n", end="", flush=True)
    dist.destroy_process_group()
    if rank == 0 and os.wait()[1] == 0:
        print("ran to its end")
