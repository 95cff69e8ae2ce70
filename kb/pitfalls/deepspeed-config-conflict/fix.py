"""A DeepSpeed configuration that fits any number of ranks."""

from __future__ import annotations

# part: config
import os


def deepspeed_config(micro_batch: int, accumulation: int) -> dict[str, object]:
    """Two of the three sizes are chosen; the third follows from the ranks."""
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    return {
        "train_micro_batch_size_per_gpu": micro_batch,
        "gradient_accumulation_steps": accumulation,
        "train_batch_size": micro_batch * accumulation * ranks,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 2},
    }


# end: config
