"""Only one attention backend is allowed, and it cannot take these inputs."""

import sys

# part: fixed
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


# end: fixed


def cudnn_attention(q, k, v):
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return scaled_dot_product_attention(q, k, v)


q, k, v = torch.rand(3, 1, 2, 16, 8).unbind()
run = attention if "--fixed" in sys.argv else cudnn_attention
print(f"attended to {tuple(run(q, k, v).shape)}")
print("ran to its end")
