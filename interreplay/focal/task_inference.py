"""What the encoder learns by itself, apart from what the Bellman loss may tell it."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from interreplay.focal.encoder import Posterior, kl_to_prior
from interreplay.focal.metric_loss import metric_loss
from interreplay.focal.settings import AlgoParams


def contexts_per_task(algo: AlgoParams) -> int:
    """Two where pairs of one task are wanted, so that no meta-batch is without them."""
    return 2 if algo.task_inference == "metric" else 1


def encoder_loss(
    net: Any, algo: AlgoParams, posterior: Posterior, z: Tensor, tasks: Tensor
) -> Tensor:
    """The encoder's own loss, a scalar.

    By `task_inference`: the distance metric loss over all pairs of the meta-batch; cross-entropy of
    the task's identity, read off z by a linear layer; or nothing. With the information bottleneck
    also kl_lambda times the KL to the prior, summed over the tasks (PEARL, eq. 2).

    Args:
        posterior, z: `[M, C, latent]`, of C contexts for each of M tasks.
        tasks: `[M]` int64, position among the training tasks.
    """
    repeated = tasks[:, None].expand(z.shape[:2]).flatten()
    loss = z.new_zeros(())
    if algo.task_inference == "metric":
        metric = metric_loss(z.flatten(0, 1), repeated, algo.metric_power, algo.metric_form)
        loss = loss + algo.z_loss_weight * metric
    elif algo.task_inference == "supervised":
        scores = net.classifier(z.flatten(0, 1))
        loss = loss + algo.z_loss_weight * F.cross_entropy(scores, repeated)
    if algo.use_information_bottleneck:
        loss = loss + algo.kl_lambda * kl_to_prior(posterior).sum(0).mean()
    return loss


def embedding_spread(means: Tensor) -> tuple[float, float]:
    """Table 1 of the paper: RMS and ESR of the tasks' mean embeddings `[T, latent]`.

    RMS is the mean over dimensions of the standard deviation times sqrt(2 T / (T - 1)), the
    root-mean-square distance of two tasks; ESR the share of pairs whose mean squared distance
    exceeds 2/3, what two uniform points of [-1, 1] have.
    """
    count = len(means)
    first, second = torch.triu_indices(count, count, 1)
    squared = ((means[first] - means[second]) ** 2).mean(-1)
    rms = means.std(0, correction=0).mean() * (2 * count / (count - 1)) ** 0.5
    return float(rms), float((squared > 2 / 3).float().mean())
