"""The newest sharded checkpoint has lost the file that one of its two ranks wrote."""

import argparse
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

# part: fixed
from pathlib import Path

import torch.distributed.checkpoint as dcp


def is_whole(folder: Path) -> bool:
    """Whether every shard that the checkpoint's metadata name is there."""
    if not (folder / ".metadata").is_file():  # written last: the save was interrupted
        return False
    metadata = dcp.FileSystemReader(folder).read_metadata()
    names = {info.relative_path for info in metadata.storage_data.values()}
    return all((folder / name).is_file() for name in names)


def newest_whole(root: Path) -> Path:
    """The newest checkpoint below `root` that is whole; SystemExit without one."""
    for folder in sorted(root.glob("step_*"), reverse=True):
        if is_whole(folder):
            return folder
        print(f"{folder.name} is not whole, looking for an older one")
    raise SystemExit(f"no whole checkpoint below {root}")


# end: fixed


def save(rank, world_size, root):
    dist.init_process_group("gloo", f"file://{root}/store", rank=rank, world_size=world_size)
    for step in (100, 200):
        state = {f"part_{rank}": torch.full((1000,), float(step))}
        dcp.save(state, checkpoint_id=root / f"step_{step:06}")
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--world-size", type=int, default=2)
    args = parser.parse_args()
    root = Path(tempfile.mkdtemp())
    mp.start_processes(save, (args.world_size, root), nprocs=args.world_size, start_method="fork")
    (root / "step_000200" / "__1_0.distcp").unlink()
    newest = newest_whole(root) if args.fixed else max(root.glob("step_*"))
    state = {f"part_{rank}": torch.zeros(1000) for rank in range(args.world_size)}
    dcp.load(state, checkpoint_id=newest)
    print(f"resumes at step {int(state['part_1'].mean())}")
    print("ran to its end")
