"""The job's template names a network interface that this host does not have."""

import os
import sys
import tempfile

os.environ["GLOO_SOCKET_IFNAME"] = "ib7"

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

# part: fixed
import fcntl
import socket
import struct


def use_interface_towards(address: str) -> str:
    """Let gloo use the interface whose route leads to `address`, MASTER_ADDR for instance.

    Call it before init_process_group; returns the interface's name. Linux, IPv4.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))  # sends nothing: the kernel only picks a route
        own = socket.inet_aton(probe.getsockname()[0])
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode())
            try:
                answer = fcntl.ioctl(probe, 0x8915, request)  # SIOCGIFADDR
            except OSError:  # this interface has no address
                continue
            if answer[20:24] == own:
                os.environ["GLOO_SOCKET_IFNAME"] = name
                return name
    raise LookupError(f"no interface leads to {address}")


# end: fixed


def work(rank, folder):
    dist.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=2)
    total = torch.ones(1)
    dist.all_reduce(total)
    print(f"rank {rank} sees {int(total)} ranks\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "--fixed" in sys.argv:
        print(f"interface {use_interface_towards('127.0.0.1')}")
    mp.start_processes(work, (tempfile.mkdtemp(),), nprocs=2, start_method="fork")
    print("ran to its end")
