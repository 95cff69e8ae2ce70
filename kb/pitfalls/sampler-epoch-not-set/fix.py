"""A new order in every epoch."""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DataLoader, DistributedSampler


# part: loop
def train(
    loader: DataLoader, train_step: Callable[[Any], None], epochs: int, first_epoch: int = 0
) -> None:
    """`first_epoch` is the one to resume with; counting from 0 again would repeat orders."""
    for epoch in range(first_epoch, epochs):
        if isinstance(loader.sampler, DistributedSampler):
            loader.sampler.set_epoch(epoch)  # before the loader is iterated
        for batch in loader:
            train_step(batch)


# end: loop


# part: check
class CheckedDistributedSampler(DistributedSampler):
    """Warns when a shuffled order is about to be repeated."""

    _last_epoch: int | None = None

    def __iter__(self) -> Iterator[int]:
        if self.shuffle and self._last_epoch == self.epoch:
            warnings.warn(
                f"DistributedSampler.set_epoch has not been called since epoch {self.epoch}: "
                "this epoch repeats its order",
                stacklevel=2,
            )
        self._last_epoch = self.epoch
        return super().__iter__()


# end: check
