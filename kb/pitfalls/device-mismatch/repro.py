"""The images of a batch are moved to the GPU; the mask that lies deeper in it is not."""

import sys
from typing import Any

import torch


def images_to_device(batch, device):
    return batch | {"images": batch["images"].to(device)}


# part: fixed
def to_device(value: Any, device: torch.device) -> Any:
    """The same nested batch with every tensor on the device."""
    if torch.is_tensor(value):
        return value.to(device, non_blocking=True)
    if isinstance(value, dict):
        return {key: to_device(item, device) for key, item in value.items()}
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(to_device(item, device) for item in value)
    return value


# end: fixed

if __name__ == "__main__":
    device = torch.device("cuda", 0)
    model = torch.nn.Linear(4, 2).to(device)
    batch = {"images": torch.rand(8, 4), "targets": [{"mask": torch.ones(8, 2)}]}
    move = to_device if "--fixed" in sys.argv else images_to_device
    batch = move(batch, device)
    loss = (model(batch["images"]) * batch["targets"][0]["mask"]).sum()
    loss.backward()
    print(f"loss {loss.item():.4f}")
    print("ran to its end")
