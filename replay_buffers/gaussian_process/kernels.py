"""Covariances of scaled features: RBF, Matern and rational quadratic, whole or in two factors."""

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

NOISE_FLOOR = 1e-3
# softplus(0), where gpytorch starts every positive hyperparameter.
START = math.log(2)


@dataclass(frozen=True)
class Kernel:
    """Which covariance: outputscale times the correlation of (x - x') / lengthscale.

    Attributes:
        kind: "rbf" exp(-d^2/2), "rq" (1 + d^2 / (2 alpha))^-alpha, or "matern".
        nu: smoothness of a Matern kernel, 0.5, 1.5 or 2.5.
        split: how many leading features (the state) get a factor of their own, the others (the
            action) being the second; None for one factor over all.
        mean: "zero", "constant" or "linear", of each output.
    """

    kind: str = "rbf"
    nu: float = 2.5
    split: int | None = None
    mean: str = "zero"

    def parts(self, dims: int) -> list[slice]:
        """The features of each factor."""
        if self.split is None:
            return [slice(0, dims)]
        return [slice(0, self.split), slice(self.split, dims)]


@dataclass(frozen=True)
class Hyperparameters:
    """Of g neighbourhoods (1: all the same) and p outputs (1: all the same).

    Attributes:
        lengthscale: `[g, p, D]`, equal entries without ARD.
        outputscale, noise: `[g, p]`, variances.
        alpha: `[g, p, factors]` of the rational quadratic kernel.
        bias: `[g, P]` of a constant or linear mean, which each output has to itself.
        slope: `[g, P, D]` of a linear mean.
    """

    lengthscale: Tensor
    outputscale: Tensor
    noise: Tensor
    alpha: Tensor
    bias: Tensor | None = None
    slope: Tensor | None = None

    @classmethod
    def start(
        cls, kernel: Kernel, groups: int, outputs: int, all_outputs: int, like: Tensor
    ) -> "Hyperparameters":
        """gpytorch's initial values, means at 0; `like` `[..., D]` gives dims, dtype and device."""
        dims = like.shape[-1]
        shape, factors = (groups, outputs), len(kernel.parts(dims))
        bias, slope = kernel.mean != "zero", kernel.mean == "linear"
        return cls(
            like.new_full((*shape, dims), START),
            like.new_full(shape, START),
            like.new_full(shape, START + NOISE_FLOOR),
            like.new_full((*shape, factors), START if kernel.kind == "rq" else 1.0),
            like.new_zeros(groups, all_outputs) if bias else None,
            like.new_zeros(groups, all_outputs, dims) if slope else None,
        )

    def tensors(self) -> dict[str, Tensor]:
        """Those that are there, by name."""
        named = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: tensor for name, tensor in named.items() if tensor is not None}

    def _each(self, change: Any) -> "Hyperparameters":
        return Hyperparameters(**{name: change(t) for name, t in self.tensors().items()})

    @property
    def groups(self) -> int:
        return len(self.noise)

    @property
    def outputs(self) -> int:
        return self.noise.shape[1]

    def of(self, groups: Any) -> "Hyperparameters":
        """Those of some neighbourhoods (an index or a mask); the same where all share one."""
        return self if self.groups == 1 else self._each(lambda t: t[groups])

    def average(self) -> "Hyperparameters":
        """The mean over neighbourhoods: what they share from now on."""
        return self._each(lambda t: t.mean(0, keepdim=True))

    def expand(self, groups: int) -> "Hyperparameters":
        """A copy for each of so many neighbourhoods, where all shared one."""
        return self._each(lambda t: t.expand(groups, *t.shape[1:]).clone())

    def pack(self) -> Tensor:
        """`[g, H]`, all values side by side."""
        return torch.cat([t.reshape(len(t), -1) for t in self.tensors().values()], 1)

    def unpack(self, packed: Tensor) -> "Hyperparameters":
        """Hyperparameters of this one's shapes from `[n, H]`."""
        named = self.tensors()
        sizes = [t[0].numel() for t in named.values()]
        parts = packed.split(sizes, 1)
        return Hyperparameters(
            **{
                name: part.reshape(-1, *t.shape[1:])
                for (name, t), part in zip(named.items(), parts, strict=True)
            }
        )

    def get_state(self) -> dict[str, Any]:
        return {name: t.cpu().numpy().copy() for name, t in self.tensors().items()}

    @classmethod
    def from_state(cls, state: dict[str, Any], device: torch.device) -> "Hyperparameters":
        tensors = {name: torch.from_numpy(np.array(v)).to(device) for name, v in state.items()}
        return cls(**tensors)


def concatenate(parts: list[Hyperparameters]) -> Hyperparameters:
    """One after the other along the neighbourhoods."""
    names = parts[0].tensors()
    return Hyperparameters(
        **{name: torch.cat([p.tensors()[name] for p in parts]) for name in names}
    )


class Scratch:
    """Memory that is used again: fresh pages would cost as much as a batch's arithmetic."""

    def __init__(self) -> None:
        self._flat: dict[str, Tensor] = {}

    def __call__(self, name: str, like: Tensor, *shape: int) -> Tensor:
        """An uninitialized tensor of `like`'s dtype and device, valid until `name` comes again."""
        size = math.prod(shape)
        flat = self._flat.get(name)
        if flat is None or len(flat) < size or flat.dtype != like.dtype:
            flat = self._flat[name] = like.new_empty(size)
        return flat[:size].view(shape)


def _half_squares(a: Tensor, b: Tensor | None, out: Tensor | None) -> Tensor:
    """-|a_i - b_j|^2 / 2 `[G, n, m]` of `[G, n, d]` and `[G, m, d]`; of `a` itself without `b`."""
    if b is not None:
        product = a @ b.mT
        product.sub_((a * a).sum(-1).mul_(0.5)[..., None])
        return product.sub_((b * b).sum(-1).mul_(0.5)[..., None, :])
    product = torch.bmm(a, a.mT, out=out)
    half = product.diagonal(dim1=-2, dim2=-1) * 0.5
    product.sub_(half[..., None]).sub_(half[..., None, :])
    # Rounding would keep a row at a distance from itself, which Matern's root magnifies.
    product.diagonal(dim1=-2, dim2=-1).zero_()
    return product


def _correlate(kernel: Kernel, half: Tensor, alpha: Tensor) -> Tensor:
    """Correlations from -d^2 / 2, in place; `alpha` `[G, 1, 1]`."""
    if kernel.kind == "rbf":
        return half.exp_()
    half.clamp_(max=0)  # rounding may give equal rows a negative distance
    if kernel.kind == "rq":
        return half.div_(-alpha).log1p_().mul_(-alpha).exp_()
    root = half.mul_(-4 * kernel.nu).sqrt_()  # sqrt(2 nu) d
    if kernel.nu == 0.5:
        return root.neg_().exp_()
    polynomial = 1 + root if kernel.nu == 1.5 else (root / 3).add_(1).mul_(root).add_(1)
    return root.neg_().exp_().mul_(polynomial)


def covariance(
    kernel: Kernel,
    h: Hyperparameters,
    output: int,
    a: Tensor,
    b: Tensor | None = None,
    scratch: Scratch | None = None,
) -> Tensor:
    """Covariances `[G, n, m]` of one output between features `[G, n, D]` and `[G, m, D]`.

    Without `b`, among `a` itself, with exact outputscales on the diagonal. The result may live in
    `scratch`.
    """
    scratch = scratch or Scratch()
    p = min(output, h.outputs - 1)
    # Measured from a row of the neighbourhood, large coordinates lose nothing to rounding.
    origin, inverse = a[:, :1], 1 / h.lengthscale[:, p, None]
    a = torch.sub(a, origin, out=scratch("scaled", a, *a.shape)).mul_(inverse)
    b = None if b is None else (b - origin) * inverse
    product: Tensor | None = None
    for factor, part in enumerate(kernel.parts(a.shape[-1])):
        of_a, of_b = (a, b) if kernel.split is None else (a[..., part], b)
        if kernel.split is not None and b is not None:
            of_b = b[..., part]
        out = None if b is not None else scratch(f"part {factor}", a, len(a), *a.shape[1:2] * 2)
        half = _half_squares(of_a, of_b, out)
        correlation = _correlate(kernel, half, h.alpha[:, p, factor, None, None])
        product = correlation if product is None else product.mul_(correlation)
    assert product is not None
    return product.mul_(h.outputscale[:, p, None, None])


def mean(h: Hyperparameters, x: Tensor) -> Tensor:
    """The mean function at features `[G, n, D]`: `[G, n, P]`, or 0 `[1, 1, 1]`."""
    if h.bias is None:
        return x.new_zeros(1, 1, 1)
    if h.slope is None:
        return h.bias[:, None].expand(len(x), x.shape[1], -1)
    return h.bias[:, None] + x @ h.slope.mT
