"""Gaussian noise, the noise baseline of the NMER paper."""

from typing import Any

import numpy as np

from replay_buffers.augmentations.base import Plain, Sample
from replay_buffers.errors import ReplayError
from replay_buffers.storage import ACTIONS, Floats, Storage


class GaussianNoise(Plain):
    """Every element of obs, action, reward and new_obs times 1 + std * e, e ~ N(0, 1).

    e is drawn for each element of each row. Actions are clipped back into [-1, 1]; the two flags
    are never noised. With `storage`, the noise is added instead of multiplied: std times each
    dimension's standard deviation over the stored rows.

    Raises:
        ReplayError: a negative std.
    """

    def __init__(self, std: float = 0.1, storage: Storage | None = None) -> None:
        if std < 0:
            raise ReplayError(f"the noise's standard deviation is {std}; it must be 0 or more")
        self._std = np.float32(std)
        self._storage = storage
        self._deviation: Floats | None = None
        self._next_look = 0

    def __call__(self, sample: Sample, rng: np.random.Generator) -> None:
        part = sample.rows[:, sample.schema.continuous]
        noise = self._std * rng.standard_normal(part.shape, np.float32)
        if self._storage is None:
            part *= 1 + noise
        else:
            part += noise * self._deviations(self._storage)
        actions = sample.rows[:, sample.schema.column(ACTIONS)]
        np.clip(actions, -1.0, 1.0, out=actions)

    def get_state(self) -> dict[str, Any]:
        return {"deviation": self._deviation, "next_look": self._next_look}

    def set_state(self, state: dict[str, Any]) -> None:
        self._deviation, self._next_look = state["deviation"], int(state["next_look"])

    def _deviations(self, storage: Storage) -> Floats:
        """Of every continuous column; taken anew each time the rows have grown by 1/64."""
        if self._deviation is None or storage.written >= self._next_look:
            _, deviation, _ = storage.moments(storage.schema.continuous)
            self._deviation = deviation.astype(np.float32)
            self._next_look = storage.written + max(1, len(storage) // 64)
        return self._deviation
