"""A model with a second head that takes no part in the loss, under DDP."""

import os
import sys
import tempfile

import torch
import torch._dynamo  # by DDP: once here, and not in each rank
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 2)
        self.auxiliary_head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(x)


# part: fixed
def freeze_unused(model: nn.Module, example_loss: torch.Tensor) -> list[str]:
    """The names of the parameters without part in the loss, which no longer want a gradient.

    Call it before wrapping: DDP only manages what requires a gradient at that moment.
    """
    example_loss.backward()
    unused = [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
    for name in unused:
        model.get_parameter(name).requires_grad_(False)
    model.zero_grad(set_to_none=True)
    return unused


# end: fixed

if __name__ == "__main__":
    store = f"file://{tempfile.mkdtemp()}/store"
    rank = 0 if os.fork() else 1
    dist.init_process_group("gloo", store, rank=rank, world_size=2)
    model = Classifier()
    if "--fixed" in sys.argv:
        print(
            f"rank {rank} froze {freeze_unused(model, model(torch.ones(1, 4)).sum())}\n",
            end="",
            flush=True,
        )
    model = DistributedDataParallel(model)
    for step in range(2):
        loss = model(torch.ones(1, 4)).sum()
        loss.backward()
        print(f"rank {rank} step {step} loss {loss.item():.4f}\n", end="", flush=True)
    dist.destroy_process_group()
    if rank == 0 and os.wait()[1] == 0:
        print("ran to its end")
