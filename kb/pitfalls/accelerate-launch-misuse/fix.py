"""Loading a quantised model for data-parallel training."""

from __future__ import annotations

# part: load
from accelerate import PartialState
from transformers import AutoModelForCausalLM, BitsAndBytesConfig


def load(name: str) -> AutoModelForCausalLM:
    """The whole model on this process's own GPU."""
    return AutoModelForCausalLM.from_pretrained(
        name,
        quantization_config=BitsAndBytesConfig(load_in_4bit=True),
        device_map={"": PartialState().process_index},  # not "auto": that spreads over all GPUs
    )


# end: load
