"""A job asks the hub for weights on a host without a route to it."""

import sys
from pathlib import Path

import torch

URL = "https://huggingface.co/example/encoder/resolve/main/encoder-0a1b.pt"

# What the login node has done: the file lies in a folder that the jobs see.
shared = Path("shared-weights")
shared.mkdir()
torch.save({"weight": torch.ones(4)}, shared / "encoder-0a1b.pt")

# part: fixed
from urllib.parse import urlparse


def staged_weights(url: str, folder: Path) -> dict[str, torch.Tensor]:
    """The weights of `url` from a folder filled beforehand; never asks the network."""
    path = folder / Path(urlparse(url).path).name
    if not path.exists():
        raise SystemExit(f"not staged: on a host with a network run  curl -L -o {path} {url}")
    return torch.load(path, map_location="cpu", weights_only=True)


# end: fixed

if "--fixed" in sys.argv:
    state = staged_weights(URL, shared)
else:
    state = torch.hub.load_state_dict_from_url(URL, map_location="cpu")
print(f"{len(state)} tensors")
print("ran to its end")
