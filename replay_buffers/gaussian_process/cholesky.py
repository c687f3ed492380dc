"""Batched Cholesky factors, and what happens to matrices that have none."""

from dataclasses import dataclass

import torch
from torch import Tensor

from replay_buffers.gaussian_process.kernels import Scratch

# What is added to the diagonal when a factor doesn't exist, in parts of it.
JITTER = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)


@dataclass(frozen=True)
class Factor:
    """Cholesky factors `[G, n, n]`, the rows they rest on (None: all), how they came about."""

    lower: Tensor
    live: Tensor | None
    repaired: Tensor
    failed: Tensor


def isolate(matrices: Tensor, live: Tensor) -> None:
    """Make rows that are not live independent of all others, with variance 1, in place."""
    dead = ~live
    groups = dead.any(1).nonzero().flatten()
    if len(groups) == 0:
        return
    dead = dead[groups]
    part = matrices[groups].masked_fill_(dead[:, :, None] | dead[:, None, :], 0.0)
    part.diagonal(dim1=-2, dim2=-1)[dead] = 1.0
    matrices[groups] = part


def _duplicates(matrices: Tensor, rows: int) -> Tensor:
    """`[G, n]` bool, which of the first `rows` rows are (almost) equal to an earlier one.

    Equal rows have a covariance as large as the smallest variance on the diagonal, noise and all.
    """
    tolerance = 1e-5 if matrices.dtype == torch.float32 else 1e-9
    top = matrices.diagonal(dim1=-2, dim2=-1)
    earlier = torch.ones_like(matrices[0], dtype=torch.bool).tril(-1)
    same = (matrices >= (1 - tolerance) * top[:, :, None]) & earlier
    same[:, rows:] = False
    return same.any(2)


def factor(matrices: Tensor, rows: int, scratch: Scratch | None = None) -> Factor:
    """Factor covariances `[G, n, n]` (overwritten), whatever it takes.

    What has no factor loses its duplicates among the first `rows` rows, then gets more and more
    jitter; what still has none is marked as failed, its factor being the identity. The factors may
    live in `scratch`.
    """
    out = None
    if scratch is not None:  # LAPACK writes columns
        info = torch.empty(len(matrices), dtype=torch.int32, device=matrices.device)
        out = (scratch("factor", matrices, *matrices.shape).mT, info)
    lower, info = torch.linalg.cholesky_ex(matrices, out=out)
    repaired, failed = info > 0, torch.zeros_like(info, dtype=torch.bool)
    if not repaired.any():
        return Factor(lower, None, repaired, failed)
    live = torch.ones(matrices.shape[:2], dtype=torch.bool, device=matrices.device)
    waiting = repaired.nonzero().flatten()
    live[waiting] = ~_duplicates(matrices[waiting], rows)
    part = matrices[waiting]
    isolate(part, live[waiting])
    diagonal = part.diagonal(dim1=-2, dim2=-1)
    scale = diagonal.mean(1, keepdim=True)
    added = 0.0
    for jitter in (0.0, *JITTER):
        diagonal += (jitter - added) * scale
        added = jitter
        found, info = torch.linalg.cholesky_ex(part)
        good = (info == 0) & found.isfinite().all(-1).all(-1)
        lower[waiting[good]] = found[good]
        waiting, part, scale = waiting[~good], part[~good], scale[~good]
        diagonal = part.diagonal(dim1=-2, dim2=-1)
        if len(waiting) == 0:
            break
    lower[waiting] = torch.eye(lower.shape[-1], dtype=lower.dtype, device=lower.device)
    failed[waiting] = True
    return Factor(lower, live, repaired & ~failed, failed)
