"""Stored rows as regression problems: (obs, action) against (reward, new_obs)."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from replay_buffers.gaussian_process.regression import Regression
from replay_buffers.neighbors import Neighbors
from replay_buffers.storage import (
    NEXT_OBS,
    OBS,
    REWARDS,
    Bools,
    Doubles,
    Floats,
    Ints,
    Schema,
    Storage,
)

CPU = torch.device("cpu")
Reader = Callable[[Ints], tuple[Floats, Ints | None]]


class Neighborhoods:
    """Reads neighbourhoods of a storage.

    A row that could not be mixed with the neighbourhood's own, because it is terminal or sums its
    reward over another number of steps, does not count in it either.

    Args:
        storage, neighbors: whose rows, and which are near.
        read: positions `[n]` -> rows `[n, width]` and how many steps each looks ahead (None for 1).
        use_delta: the targets are (reward, new_obs - obs).
        dtype, device: of the tensors.
    """

    def __init__(
        self,
        storage: Storage,
        neighbors: Neighbors,
        read: Reader,
        *,
        use_delta: bool = False,
        dtype: torch.dtype = torch.float64,
        device: torch.device = CPU,
    ) -> None:
        self.schema: Schema = storage.schema
        self.targets = slice(self.schema.column(REWARDS).start, self.schema.column(NEXT_OBS).stop)
        self._storage, self._neighbors, self._read = storage, neighbors, read
        self._use_delta, self._dtype, self.device = use_delta, dtype, device

    @property
    def names(self) -> list[str]:
        """Of the targets: `reward`, `new_obs_0`, ... or `delta_0`, ..."""
        word = "delta" if self._use_delta else "new_obs"
        return ["reward", *(f"{word}_{i}" for i in range(self.schema.obs_dim))]

    def numbers(self, own: Ints, lists: Ints) -> Ints:
        """Write numbers `[G, 1 + k]` of each neighbourhood's rows, -1 where there is none."""
        members = np.concatenate([own[:, None], lists], axis=1)
        return np.where(members >= 0, self._storage.numbers(members), -1)

    def regression(self, own: Ints, lists: Ints) -> Regression:
        """The neighbourhoods of rows `own` `[G]` with their neighbours `[G, k]` (-1 for none)."""
        longest = int((lists >= 0).sum(axis=1).max())
        members = np.concatenate([own[:, None], lists[:, :longest]], axis=1)
        missing = members < 0
        if missing.any():
            members = np.where(missing, own[:, None], members)
        flat, steps = self._read(members.ravel())
        rows = flat.reshape(*members.shape, -1)
        live = ~missing & (rows[..., -2] == 0)
        if steps is not None:
            steps = steps.reshape(members.shape)
            live &= steps == steps[:, :1]
        live[:, 0] = True
        if live.all():
            return self._as_regression(rows, None)
        rows[~live] = np.broadcast_to(rows[:, :1], rows.shape)[~live]
        return self._as_regression(rows, live)

    def _as_regression(self, rows: Floats, live: Bools | None) -> Regression:
        whole = torch.from_numpy(rows)
        x = whole[..., self.schema.features].to(self.device, self._dtype)
        y = whole[..., self.targets].to(self.device, self._dtype)
        if self._use_delta:
            y[..., 1:] -= x[..., self.schema.column(OBS)]
        mask = None if live is None else torch.from_numpy(live).to(self.device)
        return Regression(x, y, mask)

    def tensor(self, values: Floats | Doubles) -> Tensor:
        """As a tensor of the neighbourhoods' kind."""
        return torch.from_numpy(np.ascontiguousarray(values)).to(self.device, self._dtype)

    def outcome(self, predicted: Tensor, queries: Tensor) -> Floats:
        """(reward, new_obs) `[..., P]` float32 from predictions at queries `[..., D]`."""
        if self._use_delta:
            predicted = predicted.clone()
            predicted[..., 1:] += queries[..., self.schema.column(OBS)]
        return predicted.cpu().numpy().astype(np.float32)

    def draw(self, count: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """Up to `count` random rows that have no end, and their neighbours."""
        own = self._alive(rng.integers(len(self._storage), size=count))
        return own, self._neighbors.query(own)[0]

    def anywhere(self, count: int, rng: np.random.Generator) -> Regression:
        """One problem `[1, n, ...]` of up to `count` different rows from the whole storage."""
        size = len(self._storage)
        own = self._alive(rng.choice(size, size=min(count, size), replace=False))
        rows, steps = self._read(own)
        if steps is not None:
            rows = rows[steps == steps.max()]
        return self._as_regression(rows[None], None)

    def _alive(self, positions: Ints) -> Ints:
        going = positions[self._storage.rows[positions, -2] == 0]
        return going if len(going) else positions[:1]
