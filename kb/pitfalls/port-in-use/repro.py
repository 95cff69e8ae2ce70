"""The port of the rendezvous belongs to another process."""

import datetime
import os
import socket
import sys

import torch.distributed as dist

other_run = socket.create_server(("0.0.0.0", 29500))


# part: fixed
def free_port() -> int:
    """A port that the kernel gives: call once, in the parent, and hand it to all ranks."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


# end: fixed

os.environ["MASTER_ADDR"] = "127.0.0.1"
os.environ["MASTER_PORT"] = str(free_port()) if "--fixed" in sys.argv else "29500"
dist.init_process_group("gloo", rank=0, world_size=1, timeout=datetime.timedelta(seconds=10))
dist.barrier()
dist.destroy_process_group()
print("ran to its end")
