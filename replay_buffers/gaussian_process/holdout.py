"""How well is a row predicted that was left out? The process, the mixture and the neighbour."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from replay_buffers.gaussian_process.kernels import Hyperparameters
from replay_buffers.gaussian_process.posterior import LocalProcesses
from replay_buffers.gaussian_process.regression import Regression

# Half the width of a Gaussian's central 95 %, in standard deviations.
_CENTRAL_95 = 1.959964


@dataclass(frozen=True)
class Split:
    """Neighbourhoods without some of their rows, and these.

    Attributes:
        kept: `[G, m - r, ...]`, row 0 among them.
        held: `[G, r, ...]`; its mask says which of them count.
    """

    kept: Regression
    held: Regression


def split(data: Regression, share: float, rng: np.random.Generator) -> Split | None:
    """Hold out a share of each neighbourhood's rows, never row 0; None where too few are left."""
    groups, rows = data.x.shape[:2]
    count = max(1, round(share * (rows - 1)))
    if rows - count < 2:
        return None
    order = rng.permuted(np.tile(np.arange(1, rows), (groups, 1)), axis=1)
    chosen = torch.from_numpy(order).to(data.x.device)
    own = chosen.new_zeros(groups, 1)
    return Split(
        _rows(data, torch.cat([own, chosen[:, count:]], 1)), _rows(data, chosen[:, :count])
    )


def _rows(data: Regression, index: Tensor) -> Regression:
    def take(values: Tensor) -> Tensor:
        return values.gather(1, index[..., None].expand(-1, -1, values.shape[2]))

    mask = None if data.mask is None else data.mask.gather(1, index)
    return Regression(take(data.x), take(data.y), mask)


def _scaled(parts: Split) -> tuple[Tensor, Tensor]:
    """Features of kept and held rows over the kept ones' standard deviation; constant ones as 0."""
    kept = parts.kept
    deviation = kept.deviation(kept.x - kept.average(kept.x))
    factor = torch.where(deviation > 1e-6, 1 / deviation, torch.zeros_like(deviation))
    return (kept.x - kept.x[:, :1]) * factor, (parts.held.x - kept.x[:, :1]) * factor


def nearest_neighbor(parts: Split) -> Tensor:
    """The targets `[G, r, P]` of the kept row that is closest to each held one."""
    kept, held = _scaled(parts)
    distance = torch.cdist(held, kept)
    if parts.kept.mask is not None:
        distance = distance.masked_fill(~parts.kept.mask[:, None], torch.inf)
    return _take(parts.kept.y, distance.argmin(2))


def _take(targets: Tensor, index: Tensor) -> Tensor:
    return targets.gather(1, index[..., None].expand(-1, -1, targets.shape[2]))


def linear_mixture(parts: Split) -> Tensor:
    """`[G, r, P]`, by the mixture of row 0 with one kept row that comes closest to each held row.

    Of all lam x_0 + (1 - lam) x_j, j any kept row and lam in [0, 1]: the best that NMER could do.
    """
    kept, held = _scaled(parts)  # row 0 is the origin: mixtures are (1 - lam) x_j
    squares = (kept * kept).sum(-1)  # [G, m]
    share = (held @ kept.mT) / squares.clamp(min=1e-12)[:, None]  # of x_j
    share = share.clamp(0, 1)
    distance = squares[:, None] * share**2 - 2 * share * (held @ kept.mT)
    distance[..., 0] = torch.inf
    if parts.kept.mask is not None:
        distance = distance.masked_fill(~parts.kept.mask[:, None], torch.inf)
    best = distance.argmin(2)
    weight = share.gather(2, best[..., None])
    own, other = parts.kept.y[:, :1], _take(parts.kept.y, best)
    return own + weight * (other - own)


def evaluate(
    processes: LocalProcesses, h: Hyperparameters, parts: Split, names: list[str]
) -> dict[str, float]:
    """Errors on held-out rows.

    Args:
        processes, h: the process to judge.
        parts: of neighbourhoods.
        names: of the P targets.

    Returns:
        `holdout_<method>_<rmse|mae>/<name>` in each target's own units for the methods `gp`,
        `linear` and `nearest`; `holdout_<method>_rmse`, over all targets, in standard deviations of
        each; and `holdout_gp_coverage`, the share of targets inside the 95 % interval.
    """
    found = processes.predict(h, parts.kept, parts.held.x, variance=True, spread=True)
    assert found.variance is not None
    linear = linear_mixture(parts)
    # Where the process fails the recipe falls back on the mixture, and so it is judged.
    by_process = torch.where(found.failed[:, None, None], linear, found.mean)
    truth, counted = parts.held.y, parts.held.mask
    counted = torch.ones_like(truth[..., 0], dtype=torch.bool) if counted is None else counted
    deviation = truth[counted].std(0, correction=0).clamp(min=1e-12)
    figures: dict[str, float] = {}
    for method, predicted in (
        ("gp", by_process), ("linear", linear), ("nearest", nearest_neighbor(parts)),
    ):  # fmt: skip
        errors = (predicted - truth)[counted]
        rmse, mae = (errors**2).mean(0).sqrt(), errors.abs().mean(0)
        varies = deviation > 1e-9
        figures[f"holdout_{method}_rmse"] = float(
            ((rmse / deviation)[varies] ** 2).mean().sqrt() if varies.any() else 0.0
        )
        for i, name in enumerate(names):
            figures[f"holdout_{method}_rmse/{name}"] = float(rmse[i])
            figures[f"holdout_{method}_mae/{name}"] = float(mae[i])
    width = _CENTRAL_95 * (found.variance + found.noise).sqrt() * found.spread
    inside = ((found.mean - truth).abs() <= width)[counted & ~found.failed[:, None]]
    if len(inside):
        figures["holdout_gp_coverage"] = float(inside.double().mean())
    return figures
