"""A checkpoint whose tensors say that they were saved from a GPU, on a machine without one."""

import sys
import tempfile
from pathlib import Path
from unittest import mock

# part: fixed
import torch
from torch import nn


def load_weights(model: nn.Module, path: str | Path) -> None:
    """Copy the checkpoint's weights to wherever the model's parameters are."""
    state = torch.load(path, map_location="cpu", weights_only=True)
    model.load_state_dict(state["model"])


# end: fixed


def load_to_where_it_was_saved(model, path):
    model.load_state_dict(torch.load(path, weights_only=True)["model"])


if __name__ == "__main__":
    model = nn.Linear(4, 2)
    path = Path(tempfile.mkdtemp()) / "last.pt"
    # The tag that torch.save writes for tensors on a GPU; the rest of the file is the same.
    with mock.patch("torch.serialization.location_tag", return_value="cuda:0"):
        torch.save({"model": model.state_dict()}, path)
    load = load_weights if "--fixed" in sys.argv else load_to_where_it_was_saved
    load(model, path)
    print(f"loaded to {model.weight.device}")
    print("ran to its end")
