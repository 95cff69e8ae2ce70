"""Attention with a fast kernel where there is one."""

from __future__ import annotations

# part: attention
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

ORDER = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None = None
) -> torch.Tensor:
    """Attention by any backend that takes these inputs; MATH always does."""
    with sdpa_kernel(ORDER):
        return scaled_dot_product_attention(q, k, v, attn_mask=mask)


def why_not(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    """Print torch's own reasons against flash attention for these inputs."""
    params = torch.backends.cuda.SDPAParams(q, k, v, None, 0.0, False, False)
    torch.backends.cuda.can_use_flash_attention(params, debug=True)
    torch.backends.cuda.can_use_efficient_attention(params, debug=True)


# end: attention
