"""How far a policy is from the behaviour (BRAC, arXiv 1911.11361): KL and W by a critic, MMD."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

PENALTY_WEIGHT = 5.0
MMD_SAMPLES, MMD_SIGMA = 10, 20.0
_INSIDE_LOG = _UNDER_ROOT = 1e-8
_MMD_ROOT = 1e-6


def kl_dual(behaviour: Tensor, policy: Tensor) -> Tensor:
    """KL(pi, b) from below, per row: -softplus(c(a_b)) + log(softplus(c(a_pi)) + 1e-8) + 1.

    The best critic's softplus is the ratio pi / b (the dual of BRAC's appendix B).
    """
    return -F.softplus(behaviour) + (F.softplus(policy) + _INSIDE_LOG).log() + 1.0


def w_dual(behaviour: Tensor, policy: Tensor) -> Tensor:
    """Kantorovich's dual of W1(pi, b), per row: c(a_pi) - c(a_b), c of slope 1 at most."""
    return policy - behaviour


DUALS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"kl": kl_dual, "w": w_dual}


def gradient_penalty(
    critic: Callable[[Tensor], Tensor], behaviour: Tensor, policy: Tensor, mix: Tensor
) -> Tensor:
    """5 E[max(|dc/da| - 1, 0)^2] at a random mix of the two actions.

    On the critic's slope in the action, never on its value.

    Args:
        critic: c of actions `[n, a]`, for n given states.
        behaviour, policy: actions `[n, a]`.
        mix: `[n, 1]` in [0, 1], the policy's share.
    """
    actions = (behaviour + mix * (policy - behaviour)).detach().requires_grad_(True)
    (gradient,) = torch.autograd.grad(critic(actions).sum(), actions, create_graph=True)
    return slope_penalty(gradient)


def slope_penalty(gradient: Tensor) -> Tensor:
    """5 E[max(|dc/da| - 1, 0)^2] from dc/da `[n, a]`, with 1e-8 under the norm's root."""
    slope = ((gradient**2).sum(-1) + _UNDER_ROOT).sqrt()
    return PENALTY_WEIGHT * ((slope - 1.0).clamp_min(0.0) ** 2).mean()


def action_gradient(critic: nn.Sequential, states: Tensor, actions: Tensor) -> Tensor:
    """dc/da `[n, a]` of a ReLU network c(state, action), differentiable in the network's weights.

    The product of its weight matrices with the units that are off taken out. Which ones are off is
    constant almost everywhere: differentiating through the forward pass as well, as autograd's
    double backward does, spends half as many products again on zeros.
    """
    layers = [layer for layer in critic if isinstance(layer, nn.Linear)]
    with torch.no_grad():
        x = torch.cat([states, actions], -1)
        on = []
        for layer in layers[:-1]:
            x = layer(x).relu_()
            on.append((x > 0).to(x.dtype))
    gradient = layers[-1].weight.expand(len(states), -1)
    for layer, active in zip(reversed(layers[1:-1]), reversed(on[1:]), strict=True):
        gradient = (gradient * active) @ layer.weight
    if on:
        gradient = gradient * on[0]
        gradient = gradient @ layers[0].weight[:, -actions.shape[-1] :]
    else:
        gradient = gradient[:, -actions.shape[-1] :]
    return gradient


def _laplacian(x: Tensor, y: Tensor, sigma: float) -> Tensor:
    """Mean of exp(-|x_i - y_j|_1 / (2 sigma)) over all pairs of `[n, k, a]` and `[n, m, a]`."""
    return (-torch.cdist(x, y, p=1.0) / (2.0 * sigma)).exp().mean((-2, -1))


def mmd(policy: Tensor, behaviour: Tensor, sigma: float = MMD_SIGMA) -> Tensor:
    """Maximum mean discrepancy per row, from samples `[n, k, a]` of either side.

    sqrt(E k(x, x') + E k(y, y') - 2 E k(x, y) + 1e-6) with the Laplacian kernel (BEAR, eq. 6).
    """
    squared = (
        _laplacian(policy, policy, sigma)
        + _laplacian(behaviour, behaviour, sigma)
        - 2.0 * _laplacian(policy, behaviour, sigma)
    )
    return (squared.clamp_min(0.0) + _MMD_ROOT).sqrt()
