"""CT's energy model: how far a mixture of two transitions lies from what the world would do."""

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from replay_buffers.backprop import Backprop, linear_layers
from replay_buffers.flat_adam import FlatAdam
from replay_buffers.storage import REWARDS, Bools, Floats, Schema

_HIDDEN = 256


class EnergyModel:
    """D(s, a) -> (r, s'), two hidden layers of 256 (Lin et al. 2021, arXiv 2011.14487).

    Args:
        schema: of the rows.
        seed: of the initial weights.
        learning_rate: Adam's.
    """

    def __init__(self, schema: Schema, seed: int, learning_rate: float) -> None:
        self._outputs = slice(schema.column(REWARDS).start, schema.width - 2)  # reward, new_obs
        self._features = schema.features
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self._net = nn.Sequential(
                *(nn.Linear(schema.obs_dim + schema.action_dim, _HIDDEN), nn.ReLU()),
                *(nn.Linear(_HIDDEN, _HIDDEN), nn.ReLU()),
                nn.Linear(_HIDDEN, schema.obs_dim + 1),
            )
        self.optimize(learning_rate)

    def optimize(self, learning_rate: float) -> None:
        """Begin Adam anew."""
        self._optimizer = FlatAdam(self._net.parameters(), lr=learning_rate)
        self._passes = Backprop(linear_layers(self._net))

    @torch.no_grad()
    def step(
        self, real: Floats, partners: Floats, mixture: Floats, lam: Floats, mixed: Bools
    ) -> float:
        """Learn from the real rows, then judge the mixtures.

        Args:
            real: `[n, width]` float32, the sampled rows.
            partners, mixture, lam: `[m, width]` and `[m]` float32, of the `mixed` rows alone: each
                is `partners + lam * (real - partners)`.
            mixed: `[n]` bool, m of them.

        Returns:
            The mean energy of the mixtures, with the weights after the step.
        """
        known = len(real) + len(partners)
        inputs = self._columns(self._features, real, partners, mixture)
        error = self._passes.forward(inputs[:known])
        error -= self._columns(self._outputs, real, partners)
        self._passes.backward(error.mul_(2.0 / error.numel()))  # of the mean squared error
        self._optimizer.step()

        of_real, of_y, of_mixture = self._passes.forward(inputs).split(
            [len(real), len(partners), len(mixture)]
        )
        of_x = of_real if mixed.all() else of_real[torch.from_numpy(mixed)]
        return float(energies(of_x, of_y, of_mixture, torch.from_numpy(lam)).mean())

    @staticmethod
    def _columns(part: slice, *blocks: Floats) -> Tensor:
        return torch.from_numpy(np.concatenate([rows[:, part] for rows in blocks]))

    def get_state(self) -> dict[str, Any]:
        """Weights and optimizer."""
        return {
            "weights": {k: v.numpy().copy() for k, v in self._net.state_dict().items()},
            # A state_dict lends its tensors, which the next step would change.
            "optimizer": copy.deepcopy(self._optimizer.state_dict()),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        weights = {k: torch.from_numpy(np.array(v)) for k, v in state["weights"].items()}
        self._net.load_state_dict(weights)
        self._optimizer.load_state_dict(copy.deepcopy(state["optimizer"]))


def energies(of_x: Tensor, of_y: Tensor, of_mixture: Tensor, lam: Tensor) -> Tensor:
    """Mean squared difference `[m]` of D(mixture) and the mixture of D(x) and D(y), all `[m, o]`.

    0 where the dynamics are linear.
    """
    return (of_mixture - torch.lerp(of_y, of_x, lam[:, None])).square_().mean(-1)
