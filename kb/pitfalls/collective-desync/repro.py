"""Each rank holds another number of rows, and gathers them as they are."""

import argparse
import os
import tempfile

os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"  # compares the ranks' calls before they run

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def gather_as_they_are(rows):
    parts = [torch.empty_like(rows) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, rows)
    return torch.cat(parts)


# part: fixed
def all_gather_rows(rows: torch.Tensor) -> torch.Tensor:
    """The rows of all ranks, also where the ranks hold different numbers of them."""
    world = dist.get_world_size()
    count = torch.tensor([rows.shape[0]], device=rows.device)
    counts = [torch.zeros_like(count) for _ in range(world)]
    dist.all_gather(counts, count)
    longest = int(max(c.item() for c in counts))
    padded = rows.new_zeros((longest, *rows.shape[1:]))
    padded[: rows.shape[0]] = rows
    parts = [torch.empty_like(padded) for _ in range(world)]
    dist.all_gather(parts, padded)
    return torch.cat([p[: int(c.item())] for p, c in zip(parts, counts, strict=True)])


# end: fixed


def work(rank, world_size, folder, gather):
    dist.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=world_size)
    rows = torch.full((3 + rank, 2), float(rank))
    print(f"rank {rank} gathered {len(gather(rows))} rows\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--world-size", type=int, default=2)
    args = parser.parse_args()
    gather = all_gather_rows if args.fixed else gather_as_they_are
    ranks = (args.world_size, tempfile.mkdtemp(), gather)
    mp.start_processes(work, ranks, nprocs=args.world_size, start_method="fork")
    print("ran to its end")
