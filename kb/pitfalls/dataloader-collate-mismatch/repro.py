"""Sequences of different length meet in one batch."""

import sys

import torch
from torch.utils.data import DataLoader, Dataset

# part: fixed
from torch.nn.utils.rnn import pad_sequence


def pad_batch(samples: list[tuple[torch.Tensor, int]]) -> tuple[torch.Tensor, ...]:
    """Sequences padded to the longest (batch, length, ...), their lengths, and the labels."""
    sequences = [sequence for sequence, _ in samples]
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    labels = torch.tensor([label for _, label in samples])
    return pad_sequence(sequences, batch_first=True, padding_value=0), lengths, labels


# DataLoader(dataset, batch_size=32, collate_fn=pad_batch)
# end: fixed


class Sentences(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.ones(5 + index, 16), index % 2


if __name__ == "__main__":
    collate = pad_batch if "--fixed" in sys.argv else None
    for tokens, *_ in DataLoader(Sentences(), batch_size=4, collate_fn=collate):
        print(f"batch {tuple(tokens.shape)}")
    print("ran to its end")
