from __future__ import annotations

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
) -> None:
    """Runs from `start`, saves every 1000 steps and once more when asked to stop."""
    stop = StopRequest()
    for step in range(start, steps):
        train_step(step)
        if step % 20 == 0 and stop.agreed(device):
            save(step)
            return
        if step % 1000 == 999:
            save(step)
