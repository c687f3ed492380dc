"""A trained meta-policy as numpy sees it: infer z from transitions, act on (observation, z)."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from replay_buffers.storage import Floats


class MetaPolicy:
    """Reads the weights in place: it acts as the algorithm has learned so far.

    Observations are raw ones: the data's scale is applied here. No environment is needed.
    """

    def __init__(self, module: Any, scale: Floats | None, seed: int) -> None:
        self._module = module
        self._settings = module.settings
        self._scale = None if scale is None else np.asarray(scale, np.float32)
        self._device = next(module.parameters()).device
        self._generator = torch.Generator(self._device)
        self._generator.manual_seed(seed)

    def prior(self) -> Floats:
        """z before any transition was seen: zero, `[latent]`."""
        return np.zeros(self._settings.latent_size, np.float32)

    def infer(
        self, obs: Floats, actions: Floats, rewards: Floats, new_obs: Floats
    ) -> tuple[Floats, Floats]:
        """Mean and variance of z `[latent]` from K transitions of one task.

        Args:
            obs, new_obs: `[K, o]`. actions: `[K, a]` in [-1, 1]. rewards: `[K]`, the sparse ones
                where the configuration says so.
        """
        parts = [self._scaled(obs), self._tensor(actions), self._tensor(rewards).reshape(-1, 1)]
        if self._settings.algo_params.use_next_obs_in_context:
            parts.append(self._scaled(new_obs))
        with torch.inference_mode():
            mean, variance = self._module.encoder(torch.cat(parts, -1))
        return mean.cpu().numpy(), variance.cpu().numpy()

    def act(self, obs: Floats, z: Floats, *, deterministic: bool = True) -> Floats:
        """Actions `[n, a]` in [-1, 1] for obs `[n, o]` and z `[latent]` or `[n, latent]`."""
        states = torch.cat([self._scaled(obs), self._tensor(z).expand(len(obs), -1)], -1)
        with torch.inference_mode():
            noise = None
            if not deterministic:
                shape = (len(obs), self._module.dimensions[1])
                noise = torch.randn(shape, device=self._device, generator=self._generator)
            actions: Floats = self._module.act(states, noise).cpu().numpy()
        return actions

    def _tensor(self, values: Floats) -> Tensor:
        return torch.as_tensor(np.asarray(values, np.float32), device=self._device)

    def _scaled(self, obs: Floats) -> Tensor:
        return self._tensor(obs if self._scale is None else np.asarray(obs) / self._scale)
