"""A hand-written kernel is launched for more elements than there are, and does not look."""

import sys

import torch

UNCHECKED = """
extern "C" __global__ void scale(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    x[i] *= 2.0f;
}
"""

# part: fixed
# The grid is rounded up, so that a kernel has threads beyond the last element: they do nothing.
CHECKED = """
extern "C" __global__ void scale(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= 2.0f;
}
"""
# end: fixed

scale = torch.cuda._compile_kernel(CHECKED if "--fixed" in sys.argv else UNCHECKED, "scale")
x = torch.ones(1000, device="cuda")
scale(grid=(1 << 20, 1, 1), block=(256, 1, 1), args=[x, len(x)])  # 1 GiB
print(f"mean {x.mean().item()}")
print("ran to its end")
