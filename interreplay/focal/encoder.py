"""From a context of transitions to the task's embedding z."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from interreplay.algorithms.modules import MLP

HIDDEN = (200, 200, 200)
_LEAST_VARIANCE = 1e-7


class Posterior(NamedTuple):
    """What a context says of z.

    Attributes:
        mean, variance: `[..., latent]`. Of a deterministic encoder the variance is that of the
            single transitions' embeddings: a figure to look at, not a distribution.
    """

    mean: Tensor
    variance: Tensor

    def draw(self, noise: Tensor) -> Tensor:
        """z from noise ~ N(0, 1) of z's shape."""
        return self.mean + self.variance.sqrt() * noise


def product_of_gaussians(means: Tensor, variances: Tensor) -> Posterior:
    """The normalised product over the context's transitions `[..., K, latent]` (PEARL, sec. 4)."""
    precisions = variances.clamp_min(_LEAST_VARIANCE).reciprocal()
    variance = precisions.sum(-2).reciprocal()
    return Posterior(variance * (precisions * means).sum(-2), variance)


def kl_to_prior(posterior: Posterior) -> Tensor:
    """KL(N(mean, variance) || N(0, 1)) summed over the latent dimensions, `[...]`."""
    mean, variance = posterior
    return 0.5 * (variance + mean**2 - 1.0 - variance.log()).sum(-1)


class ContextEncoder(nn.Module):
    """z = mean over the context of tanh(net(transition)); order doesn't matter (FOCAL, sec. 4).

    With `bottleneck` each transition gives a Gaussian factor instead, and z is their product's
    (PEARL, arXiv 1903.08254).
    """

    def __init__(self, inputs: int, latent: int, *, bottleneck: bool = False) -> None:
        super().__init__()
        self.bottleneck = bottleneck
        self.net = MLP(inputs, HIDDEN, 2 * latent if bottleneck else latent)

    def forward(self, context: Tensor) -> Posterior:
        """The posterior `[..., latent]` of contexts `[..., K, inputs]`."""
        flat = context.reshape(-1, context.shape[-1])
        out = self.net(flat).view(*context.shape[:-1], -1)
        if self.bottleneck:
            means, raw = out.chunk(2, -1)
            return product_of_gaussians(means, F.softplus(raw))
        features = torch.tanh(out)
        mean = features.mean(-2)
        with torch.no_grad():
            variance = features.var(-2, correction=0)
        return Posterior(mean, variance)
