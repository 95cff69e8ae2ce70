"""The output layer shares its weight with the embedding, and each is in a group of its own."""

import sys

import torch
from torch import nn


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(16, 8)
        self.norm = nn.LayerNorm(8)
        self.output = nn.Linear(8, 16, bias=False)
        self.output.weight = self.embedding.weight

    def forward(self, tokens):
        return self.output(self.norm(self.embedding(tokens)))


# part: fixed
def make_optimizer(model: nn.Module, lr: float, decay: float) -> torch.optim.AdamW:
    """AdamW over every trainable parameter once; stops when there is none."""
    trainable = {id(p): p for p in model.parameters() if p.requires_grad}
    if not trainable:
        frozen = sum(1 for _ in model.parameters())
        raise SystemExit(f"nothing to train: {frozen} parameters, all frozen or none registered")
    matrices = [p for p in trainable.values() if p.ndim >= 2]
    vectors = [p for p in trainable.values() if p.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=lr)


# end: fixed


def make_optimizer_by_layer(model, lr, decay):
    groups = [
        {"params": model.embedding.parameters(), "weight_decay": 0.0},
        {"params": model.norm.parameters(), "weight_decay": 0.0},
        {"params": model.output.parameters(), "weight_decay": decay},
    ]
    return torch.optim.AdamW(groups, lr=lr)


model = Decoder()
make = make_optimizer if "--fixed" in sys.argv else make_optimizer_by_layer
optimizer = make(model, lr=1e-3, decay=0.1)
tokens = torch.tensor([[1, 2, 3, 4]])
nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
optimizer.step()
print(f"{sum(len(group['params']) for group in optimizer.param_groups)} parameters")
print("ran to its end")
