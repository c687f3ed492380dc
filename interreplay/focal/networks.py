"""The networks that see (state, z): the policy and Contextual BCQ's generator."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from interreplay.algorithms.modules import MLP, squash

LOG_STD_MIN, LOG_STD_MAX = -20.0, 0.0
# The inverse of tanh is infinite at the box's faces, where data often lie.
_INSIDE = 1.0 - 1e-4


class TaskPolicy(nn.Module):
    """a = tanh(u), u ~ N(mean(s, z), std(s, z)), log std in [-20, 0]."""

    def __init__(self, inputs: int, action_dim: int, hidden: Sequence[int]) -> None:
        super().__init__()
        self.net = MLP(inputs, hidden, 2 * action_dim)

    def forward(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log standard deviation of u `[..., a]`, from (s, z) `[..., inputs]`."""
        mean, log_std = self.net(states).chunk(2, -1)
        return mean, log_std.clamp(LOG_STD_MIN, LOG_STD_MAX)

    def act(self, states: Tensor, noise: Tensor | None = None) -> Tensor:
        """Actions `[..., a]`: the mode of u squashed, or drawn with noise ~ N(0, 1)."""
        mean, log_std = self(states)
        return torch.tanh(mean if noise is None else mean + log_std.exp() * noise)

    def log_density(self, states: Tensor, actions: Tensor) -> Tensor:
        """log pi(a | s, z) `[...]` of given actions in [-1, 1]."""
        mean, log_std = self(states)
        u = torch.atanh(actions.clamp(-_INSIDE, _INSIDE))
        return squash(mean, log_std, (u - mean) * (-log_std).exp())[1]


class Generator(nn.Module):
    """A conditional variational autoencoder of actions (BCQ, arXiv 1812.02900, sec. 4)."""

    def __init__(self, inputs: int, action_dim: int, hidden: Sequence[int]) -> None:
        super().__init__()
        self.latent = 2 * action_dim
        self.encoder = MLP(inputs + action_dim, hidden, 2 * self.latent)
        self.decoder = MLP(inputs + self.latent, hidden, action_dim)

    def decode(self, states: Tensor, latents: Tensor) -> Tensor:
        """Actions `[..., a]` of (s, z) `[..., inputs]` and latents `[..., 2 a]`."""
        return torch.tanh(self.decoder(torch.cat([states, latents], -1)))

    def loss(self, states: Tensor, actions: Tensor, noise: Tensor) -> Tensor:
        """Squared error of reconstruction plus half the KL to N(0, 1), means over all elements.

        `noise` is N(0, 1), `[n, 2 a]`.
        """
        mean, log_std = self.encoder(torch.cat([states, actions], -1)).chunk(2, -1)
        log_std = log_std.clamp(-4.0, 15.0)
        std = log_std.exp()
        rebuilt = self.decode(states, mean + std * noise)
        kl = -0.5 * (1.0 + 2.0 * log_std - mean**2 - std**2).mean()
        return ((rebuilt - actions) ** 2).mean() + 0.5 * kl


class Perturbation(nn.Module):
    """a + phi tanh(xi(s, z, a)), kept in [-1, 1] (BCQ, eq. 15)."""

    def __init__(self, inputs: int, action_dim: int, hidden: Sequence[int], phi: float) -> None:
        super().__init__()
        self.phi = phi
        self.net = MLP(inputs + action_dim, hidden, action_dim)

    def forward(self, states: Tensor, actions: Tensor) -> Tensor:
        shift = self.phi * torch.tanh(self.net(torch.cat([states, actions], -1)))
        return (actions + shift).clamp(-1.0, 1.0)
