"""Tokens were added to a tokenizer, and the embedding has no rows for them."""

import sys

import torch
from torch import nn

num_tokens = 6  # of the tokenizer, with the one that was added
embedding = nn.Embedding(5, 3)


# part: fixed
def grown(embedding: nn.Embedding, rows: int) -> nn.Embedding:
    """An embedding of at least so many rows that begins with the weights of the given one.

    The output layer that shares its weights grows alike. In transformers:
    `model.resize_token_embeddings(len(tokenizer))`.
    """
    if rows <= embedding.num_embeddings:
        return embedding
    larger = nn.Embedding(rows, embedding.embedding_dim, embedding.padding_idx)
    larger = larger.to(embedding.weight)
    with torch.no_grad():
        larger.weight[: embedding.num_embeddings] = embedding.weight
    return larger


# end: fixed

if "--fixed" in sys.argv:
    embedding = grown(embedding, num_tokens)
hidden = embedding(torch.tensor([0, 3, 5, 1]))
hidden.sum().backward()
print(f"hidden states of shape {tuple(hidden.shape)}")
print("ran to its end")
