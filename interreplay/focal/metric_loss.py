"""The distance metric loss that alone trains FOCAL's encoder (FOCAL, eq. 13)."""

from collections.abc import Callable

import torch
from torch import Tensor

# Keeps the root's gradient finite where two embeddings coincide.
_ROOT = 1e-12
# The old code's, under the root of a positive pair.
_CODE_ROOT = 1e-3


def _distance(squared: Tensor) -> Tensor:
    return (squared + _ROOT).sqrt()


# What a pair of different tasks costs, as a function of the squared distance d^2. For the inverse
# powers: beta / (d^n + eps). The positive ones are our reading of the paper's ablation, with a sign
# such that they, too, push apart.
REPULSION: dict[str, Callable[[Tensor], Tensor]] = {
    "inverse_square": lambda squared: 1.0 / (squared + 0.1),
    "inverse": lambda squared: 2.0 / (_distance(squared) + 0.1),
    "linear": lambda squared: -8.0 * _distance(squared),
    "square": lambda squared: -16.0 * squared,
}


def metric_loss(z: Tensor, tasks: Tensor, power: str, form: str = "paper") -> Tensor:
    """Pull embeddings of one task together, push those of different tasks apart.

    The mean over the pairs of one task plus the mean over the pairs of different ones, so that
    their balance doesn't depend on how many tasks a meta-batch holds.

    Args:
        z: `[n, latent]`.
        tasks: `[n]` int64, whose embedding each is.
        power: a name of `REPULSION`.
        form: "paper": d^2 is the sum over dimensions and a pair of one task costs d^2.
            "code": d^2 is the mean over dimensions and such a pair costs sqrt(d^2 + 1e-3), as in
            the published code.
    """
    first, second = torch.triu_indices(len(z), len(z), 1, device=z.device)
    parts = (z[first] - z[second]) ** 2
    squared = parts.sum(-1) if form == "paper" else parts.mean(-1)
    attraction = squared if form == "paper" else (squared + _CODE_ROOT).sqrt()
    same = (tasks[first] == tasks[second]).to(z.dtype)
    different = 1.0 - same
    return _mean_over(attraction, same) + _mean_over(REPULSION[power](squared), different)


def _mean_over(costs: Tensor, chosen: Tensor) -> Tensor:
    return (costs * chosen).sum() / chosen.sum().clamp_min(1.0)
