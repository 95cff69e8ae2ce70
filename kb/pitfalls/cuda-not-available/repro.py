"""A script that asks for CUDA in a process that has no usable GPU."""

import sys

import torch


# part: fixed
def usable_device() -> torch.device:
    """The GPU where this process can use one; else the CPU, and the log says so."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    print(f"running on the CPU: torch {torch.__version__}, {torch.cuda.device_count()} devices")
    return torch.device("cpu")


# end: fixed

device = usable_device() if "--fixed" in sys.argv else torch.device("cuda")
model = torch.nn.Linear(8, 2).to(device)
loss = model(torch.ones(4, 8, device=device)).mean()
loss.backward()
print(f"one step on {device}, loss {loss.item():.3f}")
print("ran to its end")
