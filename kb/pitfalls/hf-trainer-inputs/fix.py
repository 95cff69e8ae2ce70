"""From text to what a causal language model's forward takes."""

from __future__ import annotations

# part: tokenise
from typing import Any


def tokenise(dataset: Any, tokenizer: Any, max_length: int = 1024) -> Any:
    """input_ids, attention_mask and labels; padding is left to the collator."""

    def encode(batch: dict[str, list[str]]) -> dict[str, list[list[int]]]:
        encoded = tokenizer(batch["text"], truncation=True, max_length=max_length)
        encoded["labels"] = [list(ids) for ids in encoded["input_ids"]]
        return encoded

    return dataset.map(encode, batched=True, remove_columns=dataset.column_names)


# end: tokenise
