"""FSDP around a model of which a part is frozen."""

from __future__ import annotations

# part: wrap
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
    return FullyShardedDataParallel(
        model,
        auto_wrap_policy=functools.partial(
            transformer_auto_wrap_policy, transformer_layer_cls={block}
        ),
        mixed_precision=MixedPrecision(
            param_dtype=torch.bfloat16, reduce_dtype=torch.float32, buffer_dtype=torch.bfloat16
        ),
        use_orig_params=True,
        device_id=torch.cuda.current_device(),
    )


# end: wrap
