"""A path relative to the project, in a job that starts in another folder."""

import sys
import tempfile
from os import environ

import torch

environ["PROJECT_ROOT"] = tempfile.mkdtemp()

# part: fixed
import os
from pathlib import Path

ROOT = Path(os.environ.get("PROJECT_ROOT", Path(__file__).resolve().parent))


def resolve(path: str) -> Path:
    """The path as it is if absolute, else below the project, whatever the working directory."""
    return (ROOT / Path(path).expanduser()).resolve()


def check_inputs(*paths: str) -> list[Path]:
    """The resolved paths; ends the program with all that are missing, not only the first."""
    resolved = [resolve(path) for path in paths]
    if missing := [str(path) for path in resolved if not path.exists()]:
        raise SystemExit(f"missing on {os.uname().nodename}: {', '.join(missing)}")
    return resolved


# end: fixed

if __name__ == "__main__":
    torch.save({"step": 1000}, ROOT / "best.pt")
    (path,) = check_inputs("best.pt") if "--fixed" in sys.argv else ("best.pt",)
    print(f"resumes at step {torch.load(path, weights_only=True)['step']}")
    print("ran to its end")
