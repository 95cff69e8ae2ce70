"""Large temporaries come and go, and something smaller stays where each has been."""

import sys

if "--fixed" in sys.argv:
    # part: fixed
    import os

    # Before the first allocation on the GPU: one segment that grows, and no holes between many.
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"  # torch 2.1 and newer
    os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"  # its name from torch 2.9 on
    # end: fixed

import torch

# Shares of the GPU: how much this process may take, and what a temporary takes of it.
LIMIT = 0.12
TEMPORARY = 0.002
STAYS = 0.6  # of a temporary: the next one no longer fits into the rest

total = torch.cuda.get_device_properties(0).total_memory
torch.cuda.set_per_process_memory_fraction(LIMIT)
kept = []
for step in range(80):
    temporary = torch.empty(int(total * TEMPORARY), dtype=torch.uint8, device="cuda")
    del temporary
    kept.append(torch.empty(int(total * TEMPORARY * STAYS), dtype=torch.uint8, device="cuda"))
print(f"{len(kept)} blocks fit")
print("ran to its end")
