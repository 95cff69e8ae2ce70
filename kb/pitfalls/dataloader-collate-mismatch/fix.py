"""Collate functions for samples that differ."""

from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import default_collate


# part: pad
def pad_batch(samples: list[tuple[torch.Tensor, int]]) -> tuple[torch.Tensor, ...]:
    """Sequences padded to the longest (batch, length, ...), their lengths, and the labels."""
    sequences = [sequence for sequence, _ in samples]
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    labels = torch.tensor([label for _, label in samples])
    return pad_sequence(sequences, batch_first=True, padding_value=0), lengths, labels


# DataLoader(dataset, batch_size=32, collate_fn=pad_batch)
# end: pad


# part: drop
def drop_failed(samples: list[Any]) -> Any:
    """The batch without samples that are None; None if nothing is left."""
    kept = [sample for sample in samples if sample is not None]
    return default_collate(kept) if kept else None


# for batch in DataLoader(dataset, batch_size=32, collate_fn=drop_failed):
#     if batch is None:
#         continue
# end: drop
