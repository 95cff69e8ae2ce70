"""Weights saved from a wrapper, loaded into the bare model."""

import sys

# part: fixed
from typing import Any

from torch import nn
from torch.nn.modules.utils import consume_prefix_in_state_dict_if_present


def load_weights(model: nn.Module, checkpoint: dict[str, Any]) -> None:
    """Load weights that a wrapper saved, with or without a dictionary around them."""
    state = checkpoint.get("state_dict", checkpoint.get("model", checkpoint))
    for prefix in ("module.", "_orig_mod.", "model."):  # DDP, torch.compile, Lightning
        if not any(name.startswith(prefix) for name in model.state_dict()):
            consume_prefix_in_state_dict_if_present(state, prefix)
    model.load_state_dict(state)


# end: fixed

if __name__ == "__main__":
    model = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4))
    saved = {"model": nn.DataParallel(model).state_dict(), "step": 1000}
    if "--fixed" in sys.argv:
        load_weights(model, saved)
    else:
        model.load_state_dict(saved["model"])
    print(f"resumes at step {saved['step']}")
    print("ran to its end")
