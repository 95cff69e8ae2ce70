"""The covariance of fewer samples than dimensions has no full rank."""

import sys

import torch


# part: fixed
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


# end: fixed

samples = torch.rand(20, 64, generator=torch.Generator().manual_seed(0))
covariance = torch.cov(samples.T)  # 64 x 64 of rank 19
factorise = safe_cholesky if "--fixed" in sys.argv else torch.linalg.cholesky
factor = factorise(covariance)
print(f"largest difference {(factor @ factor.mT - covariance).abs().max():.1e}")
print("ran to its end")
