"""A scheduler that ends a job of torchrun after eight steps, and warns a job that asks for it."""

import os
import subprocess
import sys
from pathlib import Path

# part: fixed
import signal
from collections.abc import Callable

import torch
import torch.distributed as dist


class StopRequest:
    """Remembers that the scheduler asked to stop; all ranks then agree on the same step."""

    def __init__(self) -> None:
        self._asked = False
        for number in (signal.SIGUSR1, signal.SIGTERM):
            signal.signal(number, self._remember)

    def _remember(self, number: int, frame: object) -> None:
        self._asked = True

    def agreed(self, device: torch.device) -> bool:
        """Whether any rank was asked; a collective, so every rank calls it at the same step."""
        asked = torch.tensor([float(self._asked)], device=device)
        if dist.is_initialized():
            dist.all_reduce(asked, op=dist.ReduceOp.MAX)
        return bool(asked.item())


def train(
    steps: int,
    start: int,
    train_step: Callable[[int], None],
    save: Callable[[int], None],
    device: torch.device,
    stop_every: int = 20,
) -> None:
    """Runs from `start`, saves every 1000 steps and once more when asked to stop."""
    stop = StopRequest()
    for step in range(start, steps):
        train_step(step)
        if step % stop_every == 0 and stop.agreed(device):
            save(step)
            return
        if step % 1000 == 999:
            save(step)


# end: fixed


def train_step(step):
    print(f"step {step}", flush=True)
    if step in (3, 8):
        sys.stdin.readline()  # here the scheduler acts


def job():
    if "--fixed" in sys.argv:
        train(100, 0, train_step, lambda step: print(f"saved step {step}"), "cpu", stop_every=1)
        return
    for step in range(100):
        train_step(step)


def schedule(agent):
    """Warns a job that asks for it at step 3; ends at step 8 what then still runs."""
    for line in agent.stdout:
        print(line, end="", flush=True)
        if line == "step 8\n":
            agent.terminate()
        elif line == "step 3\n":
            ranks = Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()
            for rank in ranks if "--fixed" in sys.argv else ():
                os.kill(int(rank), signal.SIGUSR1)
            agent.stdin.write("\n")
            agent.stdin.flush()
    return agent.wait()


if __name__ == "__main__" and "--job" in sys.argv:
    job()
elif __name__ == "__main__":
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    job_command = [*launcher, __file__, "--job", *sys.argv[1:]]
    pipe = subprocess.PIPE
    if status := schedule(subprocess.Popen(job_command, stdin=pipe, stdout=pipe, text=True)):
        raise SystemExit(status)
    print("ran to its end")
