"""Workers hand batches over in a /dev/shm that is smaller than one of them."""

import os
import sys
from multiprocessing import shared_memory

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Frames(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return np.full((1024, 1024), index, dtype=np.float32)  # 4 MiB


def through_shared_memory(samples):
    """As torch before 2.10 did with each batch: map a file of /dev/shm, then write into it."""
    batch = np.stack(samples)
    block = shared_memory.SharedMemory(create=True, size=batch.nbytes)
    np.ndarray(batch.shape, batch.dtype, block.buf)[:] = batch
    return block.name


# part: fixed
def through_the_pipe(samples: list[np.ndarray]) -> np.ndarray:
    """A collate_fn whose batch needs no /dev/shm: NumPy arrays are pickled into the worker's pipe.

    Slower than shared memory; `torch.from_numpy(batch)` in the training process costs no copy.
    """
    return np.stack(samples)


# end: fixed

if __name__ == "__main__":
    size = os.statvfs("/dev/shm")
    print(f"/dev/shm has {size.f_blocks * size.f_frsize >> 20} MiB, a batch takes 8 MiB")
    collate = through_the_pipe if "--fixed" in sys.argv else through_shared_memory
    for batch in DataLoader(Frames(), batch_size=2, num_workers=1, collate_fn=collate):
        torch.from_numpy(batch).sum()
    print("ran to its end")
