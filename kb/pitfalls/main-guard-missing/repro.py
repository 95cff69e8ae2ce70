"""A script that trains when it is imported, and workers that are spawned and import it."""

import sys

import torch
from torch.utils.data import DataLoader, TensorDataset


def train():
    data = TensorDataset(torch.arange(64))
    loader = DataLoader(data, batch_size=16, num_workers=1, multiprocessing_context="spawn")
    for (batch,) in loader:
        print(f"sum {batch.sum().item()}")
    print("ran to its end")


if "--fixed" not in sys.argv:
    train()
    sys.exit()


# part: fixed
def main() -> None:
    """All that the script does; a child imports the file and finds functions only."""
    train()


if __name__ == "__main__":
    main()
# end: fixed
