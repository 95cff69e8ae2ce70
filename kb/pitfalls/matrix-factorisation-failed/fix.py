"""A Cholesky factor for covariance matrices as training makes them."""

from __future__ import annotations

# part: cholesky
import torch


def safe_cholesky(matrix: torch.Tensor, jitter: float = 1e-6, tries: int = 5) -> torch.Tensor:
    """Factor of a nearly positive-definite matrix; raises with the reason when it is not."""
    if not torch.isfinite(matrix).all():
        raise FloatingPointError("matrix has NaN or Inf: look for them upstream")
    with torch.autocast(matrix.device.type, enabled=False):
        work = matrix.double()
        work = 0.5 * (work + work.mT)
        eye = torch.eye(work.shape[-1], dtype=work.dtype, device=work.device)
        scale = work.diagonal(dim1=-2, dim2=-1).mean().clamp_min(1e-12)
        for attempt in range(tries):
            factor, info = torch.linalg.cholesky_ex(work + jitter * 10**attempt * scale * eye)
            if not info.any():
                return factor.to(matrix.dtype)
    raise torch.linalg.LinAlgError(f"not positive-definite even with jitter, info {info.max()}")


# end: cholesky
