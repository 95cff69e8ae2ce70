"""A collate function for samples that may be missing."""

from typing import Any

from torch.utils.data import default_collate


# part: drop
def drop_failed(samples: list[Any]) -> Any:
    """The batch without samples that are None; None if nothing is left."""
    kept = [sample for sample in samples if sample is not None]
    return default_collate(kept) if kept else None


# for batch in DataLoader(dataset, batch_size=32, collate_fn=drop_failed):
#     if batch is None:
#         continue
# end: drop
