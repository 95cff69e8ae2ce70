"""A batch that can be pinned."""

from dataclasses import dataclass

import torch


# part: batch
@dataclass
class Batch:
    """A batch of variable-length texts; the DataLoader calls pin_memory() on it."""

    tokens: torch.Tensor
    lengths: torch.Tensor

    def pin_memory(self) -> "Batch":
        return Batch(self.tokens.pin_memory(), self.lengths.pin_memory())

    def to(self, device: torch.device) -> "Batch":
        return Batch(
            self.tokens.to(device, non_blocking=True), self.lengths.to(device, non_blocking=True)
        )


# end: batch
