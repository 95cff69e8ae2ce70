"""One sample makes a native decoder read through a bad pointer, in a worker."""

import ctypes
import sys

import torch
from torch.utils.data import DataLoader, Dataset, Subset


class Frames(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        if index == 0:
            ctypes.string_at(1, 4)  # what a decoder does with a broken file
        return torch.tensor(index)


# part: fixed
import multiprocessing


def _load(dataset, start, stop, reached) -> None:
    for index in range(start, stop):
        reached.value = index
        dataset[index]


def find_deadly_samples(dataset: Dataset, length: int) -> list[int]:
    """Indices whose loading kills the process (not those that raise an exception)."""
    context = multiprocessing.get_context("fork")
    deadly, start = [], 0
    while start < length:
        reached = context.Value("q", start)
        child = context.Process(target=_load, args=(dataset, start, length, reached))
        child.start()
        child.join()
        if child.exitcode == 0:
            break
        if child.exitcode < 0:
            deadly.append(reached.value)
        else:
            print(f"sample {reached.value} raised an exception, see above")
        start = reached.value + 1
    return deadly


def without_deadly_samples(dataset: Dataset) -> Subset:
    """The dataset without the samples that kill a worker."""
    deadly = find_deadly_samples(dataset, len(dataset))
    print(f"left out: samples {deadly}")
    return Subset(dataset, [i for i in range(len(dataset)) if i not in deadly])


# end: fixed

if __name__ == "__main__":
    frames = without_deadly_samples(Frames()) if "--fixed" in sys.argv else Frames()
    batches = list(DataLoader(frames, batch_size=2, num_workers=1))
    print(f"{len(batches)} batches")
    print("ran to its end")
