"""The command line's Namespace was saved beside the weights."""

import sys
import tempfile
from pathlib import Path

# part: fixed
import argparse
from typing import Any

import torch


def load_checkpoint(path: str | Path) -> dict[str, Any]:
    """The checkpoint; of classes it may hold the ones named here and no others."""
    with torch.serialization.safe_globals([argparse.Namespace]):  # the class in the message
        return torch.load(path, map_location="cpu", weights_only=True)


# end: fixed

if __name__ == "__main__":
    path = Path(tempfile.mkdtemp()) / "last.pt"
    args = argparse.Namespace(lr=0.1, batch_size=32)
    torch.save({"model": torch.nn.Linear(4, 2).state_dict(), "args": args}, path)
    checkpoint = load_checkpoint(path) if "--fixed" in sys.argv else torch.load(path)
    print(f"resumes with lr {checkpoint['args'].lr}")
    print("ran to its end")
