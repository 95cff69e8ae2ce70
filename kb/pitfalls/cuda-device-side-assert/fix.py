from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


# part: labels
def check_labels(labels: Tensor, num_classes: int, ignore_index: int = -100) -> Tensor:
    """The labels as they came; raises if one of them is no class.

    Call it in the dataset or in collate_fn, where tensors are still on the CPU: it then costs
    no synchronisation, and the traceback names the sample.
    """
    valid = (labels == ignore_index) | ((labels >= 0) & (labels < num_classes))
    if not bool(valid.all()):
        bad = sorted(set(labels[~valid].tolist()))
        raise ValueError(f"labels {bad} are not in 0..{num_classes - 1}")
    return labels


# end: labels


# part: logits
def binary_loss(logits: Tensor, target: Tensor) -> Tensor:
    """Replaces `F.binary_cross_entropy(logits.sigmoid(), target)`.

    A NaN becomes a NaN loss that can be found, not an assertion that kills the CUDA context.
    """
    return F.binary_cross_entropy_with_logits(logits, target)


# end: logits
