"""Multiplicative Gaussian noise, the noise baseline of the NMER paper."""

import numpy as np

from replay_buffers.augmentations.base import Sample, Stateless
from replay_buffers.errors import ReplayError
from replay_buffers.storage import ACTIONS


class GaussianNoise(Stateless):
    """Every element of obs, action, reward and new_obs times 1 + std * e, e ~ N(0, 1).

    e is drawn for each element of each row. Actions are clipped back into [-1, 1]; the two flags
    are never noised.

    Raises:
        ReplayError: a negative std.
    """

    def __init__(self, std: float = 0.1) -> None:
        if std < 0:
            raise ReplayError(f"the noise's standard deviation is {std}; it must be 0 or more")
        self._std = std

    def __call__(self, sample: Sample, rng: np.random.Generator) -> None:
        part = sample.rows[:, sample.schema.continuous]
        part *= 1 + np.float32(self._std) * rng.standard_normal(part.shape, np.float32)
        actions = sample.rows[:, sample.schema.column(ACTIONS)]
        np.clip(actions, -1.0, 1.0, out=actions)
