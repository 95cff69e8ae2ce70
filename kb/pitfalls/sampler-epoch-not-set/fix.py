"""A sampler that notices a repeated order."""

import warnings
from collections.abc import Iterator

from torch.utils.data import DistributedSampler


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
