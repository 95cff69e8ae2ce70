"""Importing this file starts nothing; running it trains."""

# part: fixed
import torch
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    data = TensorDataset(torch.arange(64))
    loader = DataLoader(data, batch_size=8, num_workers=2, multiprocessing_context="spawn")
    for (batch,) in loader:
        print(batch.sum().item())


if __name__ == "__main__":
    main()
# end: fixed
