"""A runtime call fails, nobody looks at its status, and the next kernel's launch reports it."""

import sys

import torch

runtime = torch.cuda.cudart()
buffer = torch.zeros(1 << 20)
size = buffer.numel() * buffer.element_size()
runtime.cudaHostRegister(buffer.data_ptr(), size, 0)
if "--fixed" not in sys.argv:
    runtime.cudaHostRegister(buffer.data_ptr(), size, 0)  # it is page-locked already
x = torch.ones(4, device="cuda")
print(f"sum {(x * 2).sum().item()}")
runtime.cudaHostUnregister(buffer.data_ptr())
print("ran to its end")
