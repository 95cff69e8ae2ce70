"""The last step of an image build: every compiled package is loaded once, all faults are told."""

# part: fixed
import importlib
import sys

import torch

COMPILED = ["torchvision", "torchaudio", "flash_attn", "xformers.ops", "deepspeed"]


def find_broken(names: list[str]) -> list[str]:
    """One line for each installed package whose import fails; absent ones do not count."""
    broken = []
    for name in names:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name.split(".")[0]:
                broken.append(f"{name}: {error}")
        except (ImportError, OSError, RuntimeError) as error:
            broken.append(f"{name}: {error}")
    return broken


if faults := find_broken(COMPILED):
    sys.exit(f"torch {torch.__version__}, CUDA {torch.version.cuda}\n" + "\n".join(faults))
# end: fixed
