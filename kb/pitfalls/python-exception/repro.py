"""A configuration file does not hold a key that the program reads."""

import sys
from typing import Any

import torch

# part: fixed
DEFAULTS = {"lr": 1e-3, "batch_size": 32}
REQUIRED = {"lr": float, "batch_size": int, "data_path": str}


def checked(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration with the defaults filled in; stops with all its faults at once."""
    full = DEFAULTS | config
    missing = [key for key in REQUIRED if key not in full]
    unknown = sorted(full.keys() - REQUIRED.keys())
    wrong = [k for k, kind in REQUIRED.items() if k in full and not isinstance(full[k], kind)]
    if missing or unknown or wrong:
        raise SystemExit(f"config: missing {missing}, unknown {unknown}, wrong type {wrong}")
    return full


# end: fixed


def make_optimizer(model, config):
    return torch.optim.SGD(model.parameters(), lr=config["lr"])


config = {"batch_size": 16, "data_path": "shards"}
if "--fixed" in sys.argv:
    config = checked(config)
optimizer = make_optimizer(torch.nn.Linear(4, 2), config)
print(f"learning rate {optimizer.param_groups[0]['lr']}")
print("ran to its end")
