"""CXX, as a job template sets it, names a compiler that this machine does not have."""

import sys

# part: fixed
import os
import shutil


def set_compilers() -> None:
    """Let CC and CXX name compilers that this machine has; call it before importing torch."""
    for variable, names in {"CC": ("gcc", "clang"), "CXX": ("g++", "clang++")}.items():
        present = [name for name in (os.environ.get(variable, ""), *names) if shutil.which(name)]
        if not present:
            raise SystemExit(f"no compiler for {variable}: install one of {', '.join(names)}")
        os.environ[variable] = present[0]


# end: fixed

os.environ["CXX"] = "/opt/toolchain/bin/g++"
if "--fixed" in sys.argv:
    set_compilers()
    print(f"CXX is {os.environ['CXX']}")

import torch
from torch._inductor import config

# One kernel: compiled in this process, without headers compiled ahead for others.
config.compile_threads = 1
config.cpp_cache_precompile_headers = False


@torch.compile
def scaled(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) * 2 + 1


print(f"mean {scaled(torch.ones(64)).mean():.3f}")
print("ran to its end")
