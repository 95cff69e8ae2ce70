"""A frozen layer beside a trainable one, in one unit of FSDP."""

import os
import sys
import tempfile

# part: fixed
import functools

import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy


def shard(model: nn.Module, block: type[nn.Module]) -> FullyShardedDataParallel:
    """The model sharded block by block; frozen parameters (LoRA, frozen encoder) are allowed."""
    for parameter in model.parameters():  # one dtype everywhere, mixed precision on top
        if parameter.is_floating_point():
            parameter.data = parameter.data.float()
    has_gpu = torch.cuda.is_available()
    return FullyShardedDataParallel(
        model,
        auto_wrap_policy=functools.partial(
            transformer_auto_wrap_policy, transformer_layer_cls={block}
        ),
        mixed_precision=MixedPrecision(
            param_dtype=torch.bfloat16, reduce_dtype=torch.float32, buffer_dtype=torch.bfloat16
        ),
        use_orig_params=True,
        device_id=torch.cuda.current_device() if has_gpu else torch.device("cpu"),
    )


# end: fixed


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Linear(8, 8).requires_grad_(False)
        self.adapter = nn.Linear(8, 8)

    def forward(self, x):
        return self.base(x) + self.adapter(x)


if __name__ == "__main__":
    store = f"file://{tempfile.mkdtemp()}/store"
    rank = 0 if os.fork() else 1
    torch.distributed.init_process_group("gloo", store, rank=rank, world_size=2)
    model = nn.Sequential(Block(), Block())
    if "--fixed" in sys.argv:
        sharded = shard(model, Block)
    else:
        sharded = FullyShardedDataParallel(model, device_id=torch.device("cpu"))
    sharded(torch.ones(2, 8)).sum().backward()
    print(f"rank {rank} made a step\n", end="", flush=True)
    torch.distributed.destroy_process_group()
    if rank == 0 and os.wait()[1] == 0:
        print("ran to its end")
