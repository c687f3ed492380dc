"""Exact posteriors of many small Gaussian processes at once.

With K = L L^T the covariance of a neighbourhood's m rows and k that of its rows with a query, the
posterior is k^T K^-1 y with variance k(q, q) - k^T K^-1 k (Rasmussen and Williams 2006, algorithm
2.1). Factoring costs m^3 / 3 operations per neighbourhood whatever the number of outputs P, as long
as these share their hyperparameters; a query then costs m^2.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from replay_buffers.gaussian_process.cholesky import Factor, factor, isolate
from replay_buffers.gaussian_process.kernels import (
    Hyperparameters,
    Kernel,
    Scratch,
    covariance,
    mean,
)
from replay_buffers.gaussian_process.regression import Normalization, Regression, Units

# Covariances factored together: few enough to stay in the cache, enough to be worth a call.
_AT_ONCE_BYTES = 6_000_000


@dataclass(frozen=True)
class Prediction:
    """Of G neighbourhoods at q queries each.

    Attributes:
        mean: `[G, q, P]` in the targets' units.
        variance: `[G, q, p]` of the noiseless function in the Gaussian process's units, p being 1
            where the outputs share it; None when it was not asked for.
        noise: `[G, 1, p]` or `[1, 1, p]`, variance of the noise in the same units.
        spread: `[G, 1, P]` or 1.0, the targets' units in those of the Gaussian process.
        repaired: `[G]` bool, neighbourhoods that needed duplicates dropped, or jitter.
        failed: `[G]` bool, neighbourhoods without a prediction: theirs are meaningless.
    """

    mean: Tensor
    variance: Tensor | None
    noise: Tensor
    spread: Tensor | float
    repaired: Tensor
    failed: Tensor

    def draw(self, normal: Tensor) -> Tensor:
        """A draw of the noiseless function `[G, q, P]` from N(0, 1) `[G, q, P]`."""
        assert self.variance is not None
        return self.mean + self.variance.sqrt() * self.spread * normal

    def log_density(self) -> Tensor:
        """`[G, q]`, the mean over outputs of the log predictive density at its own mean."""
        assert self.variance is not None
        return -0.5 * (2 * torch.pi * (self.variance + self.noise)).log().mean(-1)


def noisy(
    kernel: Kernel,
    h: Hyperparameters,
    output: int,
    x: Tensor,
    mask: Tensor | None,
    scratch: Scratch | None = None,
) -> Tensor:
    """Covariances `[G, n, n]` of noisy values at x `[G, n, D]`; rows out of `mask` stand alone."""
    matrices = covariance(kernel, h, output, x, scratch=scratch)
    p = min(output, h.outputs - 1)
    matrices.diagonal(dim1=-2, dim2=-1).add_(h.noise[:, p, None])
    if mask is not None:
        isolate(matrices, mask)
    return matrices


class Conditioned:
    """Gaussian processes given their neighbourhoods, for any number of queries.

    Args:
        kernel, h: what to factor with.
        data: G neighbourhoods.
        units: of these.
    """

    def __init__(self, kernel: Kernel, h: Hyperparameters, data: Regression, units: Units) -> None:
        self._kernel, self._units, self._h = kernel, units, h
        self._scaled, self._x = units.absorbed(h, data.x)
        self._residual = units.targets(data.y) - mean(h, units.features(data.x))
        if data.mask is not None:
            # A row that doesn't count may hold anything; its weight is 0.
            self._residual = self._residual * data.mask[..., None]
        self._mask = data.mask
        self._factors = [
            factor(noisy(kernel, self._scaled, p, self._x, data.mask), data.x.shape[1])
            for p in range(h.outputs)
        ]
        self._solved = [
            torch.cholesky_solve(self._of_output(p), part.lower)
            for p, part in enumerate(self._factors)
        ]

    def _of_output(self, output: int) -> Tensor:
        return self._residual if self._h.outputs == 1 else self._residual[..., output, None]

    def predict(self, queries: Tensor, variance: bool = False) -> Prediction:
        """At queries `[G, q, D]`, which are in the data's own units."""
        _, q = self._units.absorbed(self._h, queries)
        means, variances = [], []
        for p, part in enumerate(self._factors):
            cross = covariance(self._kernel, self._scaled, p, self._x, q)
            for live in (self._mask, part.live):
                if live is not None:
                    cross = cross * live[..., None]
            means.append(cross.mT @ self._solved[p])
            if variance:
                solved = torch.linalg.solve_triangular(part.lower, cross, upper=False)
                left = self._h.outputscale[:, p, None] - (solved * solved).sum(1)
                variances.append(left.clamp_(min=0))
        predicted = torch.cat(means, -1) + mean(self._h, self._units.features(queries))
        joined = torch.stack(variances, -1) if variance else None
        restored = self._units.restore(predicted)
        return _prediction(self._units, self._h, restored, joined, self._factors)


def _prediction(
    units: Units,
    h: Hyperparameters,
    restored: Tensor,
    variance: Tensor | None,
    factors: list[Factor],
) -> Prediction:
    repaired = torch.stack([part.repaired for part in factors]).any(0)
    failed = torch.stack([part.failed for part in factors]).any(0)
    failed = failed | ~restored.isfinite().all(-1).all(-1)
    return Prediction(restored, variance, h.noise[:, None], units.spread, repaired, failed)


class LocalProcesses:
    """Posteriors of many neighbourhoods, each asked at its own queries.

    Args:
        kernel: of all of them.
        normalization: the units that hyperparameters are meant for.
    """

    def __init__(self, kernel: Kernel, normalization: Normalization) -> None:
        self.kernel, self.normalization = kernel, normalization
        self._scratch = Scratch()

    def condition(
        self, h: Hyperparameters, data: Regression, spread: bool = False
    ) -> "Conditioned":
        """Factor the neighbourhoods, to be asked any number of times."""
        units = self.normalization.units(data, spread or self.kernel.mean != "zero")
        return Conditioned(self.kernel, h, data, units)

    def predict(
        self,
        h: Hyperparameters,
        data: Regression,
        queries: Tensor,
        *,
        variance: bool = False,
        spread: bool = False,
    ) -> Prediction:
        """Posteriors of G neighbourhoods at queries `[G, q, D]`, which are in the data's own units.

        Args:
            h: hyperparameters.
            data: the neighbourhoods.
            queries: where.
            variance: ask for variances, which cost more when q > 1.
            spread: ask for the targets' spread, to bring variances to the targets' units.
        """
        rows = data.x.shape[1] + 1
        size = max(1, _AT_ONCE_BYTES // (rows * rows * data.x.element_size()))
        parts = []
        for start in range(0, len(data), size):
            chunk = slice(start, start + size)
            some, own, at = data.of(chunk), h.of(chunk), queries[chunk]
            if queries.shape[1] == 1:
                units = self.normalization.units(some, spread or self.kernel.mean != "zero")
                parts.append(self._at_one_query(own, some, units, at))
            else:
                parts.append(self.condition(own, some, spread).predict(at, variance))
        return parts[0] if len(parts) == 1 else _joined(parts, h)

    def _at_one_query(
        self, h: Hyperparameters, data: Regression, units: Units, queries: Tensor
    ) -> Prediction:
        """One query each: the query rides along as one more row of the matrix that is factored.

        With the factor [[L, 0], [v^T, d]], v = L^-1 k: d^2 is the predictive variance, noise
        included, and L^-T v = K^-1 k, the weight of each row's target, is one back substitution for
        all outputs.
        """
        groups, count, dims = data.x.shape
        with_query = self._scratch("rows", data.x, groups, count + 1, dims)
        scaled, rows = units.absorbed(h, torch.cat([data.x, queries], 1, out=with_query))
        live = None
        if data.mask is not None:
            live = torch.cat([data.mask, data.mask.new_ones(groups, 1)], 1)
        factors, weights, variances = [], [], []
        for p in range(h.outputs):
            matrices = noisy(self.kernel, scaled, p, rows, live, self._scratch)
            part = factor(matrices, count, self._scratch)
            d = part.lower[:, -1, -1].clone()
            right = torch.zeros_like(part.lower[..., :1])
            right[:, -1, 0] = -d
            solved = torch.linalg.solve_triangular(part.lower.mT, right, upper=True)
            weights.append(solved[:, :count].mT)
            variances.append((d * d - h.noise[:, p]).clamp_(min=0)[:, None])
            factors.append(part)
        restored = _weighted(weights, data.y, units)
        if self.kernel.mean != "zero":
            at_rows, at_query = (mean(h, units.features(x)) for x in (data.x, queries))
            restored += (at_query - _weighted(weights, at_rows, None)) * units.spread
        return _prediction(units, h, restored, torch.stack(variances, -1), factors)


def _weighted(weights: list[Tensor], y: Tensor, units: Units | None) -> Tensor:
    """`[G, 1, P]`: the sum of weight `[G, 1, m]` times y, plus what it lacks to 1 times the center.

    Which is center + weights (y - center), without a copy of all targets.
    """
    if len(weights) == 1:
        total, sums = weights[0] @ y, weights[0].sum(-1, keepdim=True)
    else:
        each = torch.cat(weights, 1)  # [G, P, m]
        total = (each * y.mT).sum(-1)[:, None]
        sums = each.sum(-1)[:, None]
    return total if units is None else total + (1 - sums) * units.center


def _joined(parts: list[Prediction], h: Hyperparameters) -> Prediction:
    def cat(name: str) -> Tensor:
        return torch.cat([getattr(part, name) for part in parts])

    first = parts[0]
    return Prediction(
        cat("mean"),
        None if first.variance is None else cat("variance"),
        h.noise[:, None],
        first.spread if isinstance(first.spread, float) else cat("spread"),
        cat("repaired"),
        cat("failed"),
    )
