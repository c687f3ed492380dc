"""Neighbourhoods as regression problems: which rows count, and in which units."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from replay_buffers.gaussian_process.kernels import Hyperparameters

# Below this part of a dimension's magnitude, float32 rows differ by rounding alone.
_CONSTANT = 1e-6


@dataclass(frozen=True)
class Regression:
    """G problems of m rows each.

    Attributes:
        x: `[G, m, D]` features, row 0 being the neighbourhood's own row.
        y: `[G, m, P]` targets.
        mask: `[G, m]` bool, which rows count; None for all. A row that doesn't holds a copy of
            row 0, so that ranges need not know of it.
    """

    x: Tensor
    y: Tensor
    mask: Tensor | None = None

    def __len__(self) -> int:
        return len(self.x)

    def of(self, groups: Any) -> "Regression":
        """Some of the problems (an index, a slice or a mask)."""
        mask = None if self.mask is None else self.mask[groups]
        return Regression(self.x[groups], self.y[groups], mask)

    def average(self, values: Tensor) -> Tensor:
        """`[G, 1, n]`, the mean of values `[G, m, n]` over the rows that count."""
        if self.mask is None:
            return values.mean(1, keepdim=True)
        counted = self.mask.to(values.dtype)
        return (counted / counted.sum(1, keepdim=True))[:, None] @ values

    def deviation(self, centered: Tensor) -> Tensor:
        """`[G, 1, n]`, the root mean square over the rows that count."""
        return self.average(centered**2).sqrt_()


def _positive(size: Tensor, level: Tensor) -> Tensor:
    """`size`, with 1 for a dimension whose values all lie at about the same `level`."""
    least = level.abs().add_(size).clamp_(min=1).mul_(_CONSTANT)
    return torch.where(size > least, size, torch.ones_like(size))


@dataclass(frozen=True)
class Units:
    """From a neighbourhood's own units to the Gaussian process's, and back.

    Attributes:
        offset, factor: `[G, 1, D]`, features become (x - offset) * factor; None for as they are.
        basis: `[G, D, C]`, then projected on their C principal components; None for no projection.
        center, spread: `[G, 1, P]`, targets become (y - center) / spread; 1.0 where the prediction
            doesn't depend on it.
    """

    offset: Tensor | None
    factor: Tensor | None
    basis: Tensor | None
    center: Tensor | float
    spread: Tensor | float

    def features(self, x: Tensor) -> Tensor:
        if self.offset is not None and self.factor is not None:
            x = (x - self.offset) * self.factor
        return x if self.basis is None else x @ self.basis

    def absorbed(self, h: Hyperparameters, x: Tensor) -> tuple[Hyperparameters, Tensor]:
        """Hyperparameters and features with the same covariances as `h` at `features(x)`.

        A covariance only sees differences over lengthscales: dividing the lengthscales by `factor`
        spares two passes over the rows.
        """
        if self.basis is not None or self.factor is None:
            return h, self.features(x)
        return replace(h, lengthscale=h.lengthscale / self.factor), x

    def targets(self, y: Tensor) -> Tensor:
        y = y - self.center
        return y if isinstance(self.spread, float) else y / self.spread

    def restore(self, y: Tensor) -> Tensor:
        """Predictions `[G, q, P]` in the targets' own units."""
        return y * self.spread + self.center


@dataclass(frozen=True)
class Normalization:
    """How neighbourhoods are brought to common units.

    Attributes:
        normalize: features to [0, 1] by their range in the neighbourhood, targets to mean 0 and
            variance 1.
        standardize: features to mean 0 and variance 1 instead.
        components: principal components of the features that are kept, None for no projection.
    """

    normalize: bool = False
    standardize: bool = False
    components: int | None = None

    def units(self, data: Regression, spread: bool = True) -> Units:
        """The units of each neighbourhood.

        A dimension without variance is only shifted. `spread=False` leaves the targets' spread
        out: without a mean function a posterior mean is linear in the targets, whatever their size.
        """
        offset = factor = None
        center: Tensor | float = 0.0
        deviation: Tensor | float = 1.0
        if self.normalize:
            offset, size = self._range(data)
            factor = 1 / _positive(size, offset)
            center = data.average(data.y)
            if spread:
                deviation = _positive(data.deviation(data.y - center), center)
        units = Units(offset, factor, None, center, deviation)
        if self.components is None:
            return units
        return replace(units, basis=self._principal(data, units.features(data.x)))

    def _range(self, data: Regression) -> tuple[Tensor, Tensor]:
        if self.standardize:
            offset = data.average(data.x)
            return offset, data.deviation(data.x - offset)
        low = data.x.amin(1, keepdim=True)
        return low, data.x.amax(1, keepdim=True) - low

    def _principal(self, data: Regression, x: Tensor) -> Tensor:
        """The directions `[G, D, C]` of greatest variance: eigenvectors of D x D matrices."""
        assert self.components is not None
        centered = x - data.average(x)
        if data.mask is not None:
            centered = centered * data.mask[..., None]
        _, vectors = torch.linalg.eigh(centered.mT @ centered)  # ascending
        return vectors[..., -min(self.components, x.shape[-1]) :].flip(-1)
