"""A kernel that reads four floats at a time is given rows that begin in between."""

import sys

import torch

SUM_ROWS = """
extern "C" __global__ void sum_rows(const float* x, float* sums, int stride) {
    float4 v = *reinterpret_cast<const float4*>(x + threadIdx.x * stride);
    sums[threadIdx.x] = v.x + v.y + v.z + v.w;
}
"""


# part: fixed
def for_vector_loads(x: torch.Tensor, alignment: int = 16) -> torch.Tensor:
    """`x`, contiguous and at an address that a kernel with vector loads may read from."""
    x = x.contiguous()
    return x if x.data_ptr() % alignment == 0 else x.clone()


# end: fixed

sum_rows = torch.cuda._compile_kernel(SUM_ROWS, "sum_rows")
rows = torch.ones(32, 5, device="cuda")[:, 1:]  # without the column of labels
if "--fixed" in sys.argv:
    rows = for_vector_loads(rows)
sums = torch.empty(32, device="cuda")
sum_rows(block=(32, 1, 1), args=[rows, sums, rows.stride(0)])
print(f"mean of the sums {sums.mean().item()}")
print("ran to its end")
