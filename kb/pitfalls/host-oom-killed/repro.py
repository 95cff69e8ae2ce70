"""Each rank of a host reads the whole checkpoint into memory of its own, beyond the group's limit."""

import argparse

import torch.multiprocessing as mp

# part: fixed
from pathlib import Path

import torch
from torch import nn


def load_weights(model: nn.Module, path: Path) -> None:
    """Give `model`, built on the meta device, the checkpoint's tensors without reading them.

    The file is mapped: all ranks of a host share its pages until one of them writes to them.
    """
    state = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
    model.load_state_dict(state, assign=True)


# end: fixed


def load_copy(model, path):
    model.to_empty(device="cpu").load_state_dict(torch.load(path, weights_only=True))


def build_model():
    with torch.device("meta"):
        return nn.Sequential(*(nn.Linear(4096, 4096, bias=False) for _ in range(3)))


def evaluate(rank, path, load, all_loaded):
    model = build_model()
    load(model, path)
    all_loaded.wait()
    print(f"rank {rank}: {sum(float(p[0, 0].detach()) for p in model.parameters())}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--world-size", type=int, default=8)
    args = parser.parse_args()
    torch.save(build_model().to_empty(device="cpu").state_dict(), "weights.pt")
    all_loaded = mp.get_context("fork").Barrier(args.world_size)
    ranks = ("weights.pt", load_weights if args.fixed else load_copy, all_loaded)
    mp.start_processes(evaluate, ranks, nprocs=args.world_size, start_method="fork")
    print("ran to its end")
