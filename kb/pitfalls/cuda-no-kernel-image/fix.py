from __future__ import annotations

import torch


# part: architecture
def require_kernels(device: int = 0) -> None:
    """Raises if this torch holds neither machine code nor PTX that the GPU can run."""
    major, minor = torch.cuda.get_device_capability(device)
    built = torch.cuda.get_arch_list()
    for arch in built:
        kind, _, number = arch.partition("_")
        built_major, built_minor = int(number.rstrip("af")[:-1]), int(number.rstrip("af")[-1])
        if kind == "sm" and built_major == major and built_minor <= minor:
            return
        if kind == "compute" and (built_major, built_minor) <= (major, minor):
            return
    name = torch.cuda.get_device_name(device)
    raise RuntimeError(f"{name} is sm_{major}{minor}; torch {torch.__version__} has {built}")


# end: architecture
