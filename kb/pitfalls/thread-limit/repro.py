"""Each process of a job starts a thread per core of a big node, under a limit of 128."""

import argparse
import multiprocessing
import resource

# part: fixed
import os


def threads_per_process(processes: int) -> int:
    """CPUs of this job divided by its processes; set before the first import of torch or NumPy."""
    threads = max(1, len(os.sched_getaffinity(0)) // processes)
    for name in ("OMP", "MKL", "OPENBLAS", "NUMEXPR", "RAYON"):
        os.environ[f"{name}_NUM_THREADS"] = str(threads)
    return threads


# end: fixed


def train(rank, threads):
    import torch

    torch.set_num_threads(threads)
    total = torch.ones(4096, 256).sum(dim=1).mean()
    print(f"rank {rank}: {torch.get_num_threads()} threads, mean {total:.0f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--world-size", type=int, default=2)
    args = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    cores_of_the_node = 256
    threads = threads_per_process(args.world_size) if args.fixed else cores_of_the_node
    resource.setrlimit(resource.RLIMIT_NPROC, (128, 128))
    context = multiprocessing.get_context("fork")
    ranks = [context.Process(target=train, args=(rank, threads)) for rank in range(args.world_size)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    if any(process.exitcode for process in ranks):
        raise SystemExit(1)
    print("ran to its end")
