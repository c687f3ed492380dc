"""With whom is a row mixed? A stranger, its successor, or one of its nearest neighbours."""

from typing import Any, Protocol

import numpy as np

from replay_buffers.errors import ReplayError
from replay_buffers.neighbors import Neighbors
from replay_buffers.parts import Stateless
from replay_buffers.storage import Doubles, Ints, Storage


class Partner(Protocol):
    """Names one partner for each sampled row."""

    def __call__(self, positions: Ints, rng: np.random.Generator) -> Ints:
        """Positions `[n]` of the partners, -1 where a row has none. Never the row itself."""

    def stats(self) -> dict[str, float]:
        """Figures since the last call, for the run's metrics."""

    def get_state(self) -> dict[str, Any]: ...

    def set_state(self, state: dict[str, Any]) -> None: ...


class RandomPartner(Stateless):
    """Any other stored row, all equally likely (mixup, Zhang et al. 2018)."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def __call__(self, positions: Ints, rng: np.random.Generator) -> Ints:
        size = len(self._storage)
        if size < 2:
            return np.full(len(positions), -1, np.int64)
        others = rng.integers(size - 1, size=len(positions))
        return others + (others >= positions)  # skips the row itself, uniform over the rest


class FollowingPartner(Stateless):
    """The next step of the row's own episode (Continuous Transition, Lin et al. 2021)."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def __call__(self, positions: Ints, rng: np.random.Generator) -> Ints:
        return self._storage.successors(positions)


class NearestPartner:
    """One of the row's k nearest neighbours, all equally likely (NMER, Sander et al. 2022)."""

    def __init__(self, neighbors: Neighbors, furthest: int = -1, in_turn: bool = False) -> None:
        """Where partners come from.

        Args:
            neighbors: of any row.
            furthest: the highest rank (1 is the nearest) that is drawn; -1 for all k.
            in_turn: rank after rank from one position to the next, for a row that comes `ranks`
                times in a row.
        """
        if furthest == 0 or furthest < -1:
            raise ReplayError(
                f"--furthest_neighbor is {furthest}; set it to 1 or more, or to -1 for all"
            )
        self.neighbors = neighbors
        self.furthest = neighbors.k if furthest == -1 else min(furthest, neighbors.k)
        self._in_turn = in_turn
        self._distance_sum, self._distance_count = 0.0, 0

    def __call__(self, positions: Ints, rng: np.random.Generator) -> Ints:
        return self.draw(positions, rng)[0]

    def draw(self, positions: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """Partners `[n]`, and the neighbours `[n, k]` they were drawn from; -1 for none."""
        ids, distances = self.neighbors.query(positions)
        rows = np.arange(len(positions))
        available = np.minimum((ids >= 0).sum(axis=1), self.furthest)
        if self._in_turn:
            picks = rows % np.maximum(available, 1)
        else:
            picks = (rng.random(len(positions)) * available).astype(np.int64)
        chosen: Doubles = distances[rows, picks]
        finite = np.isfinite(chosen)
        self._distance_sum += float(chosen[finite].sum())
        self._distance_count += int(finite.sum())
        return ids[rows, picks], ids

    def stats(self) -> dict[str, float]:
        if self._distance_count == 0:
            return {}
        mean = self._distance_sum / self._distance_count
        self._distance_sum, self._distance_count = 0.0, 0
        return {"mean_neighbor_distance": mean, **self.neighbors.stats()}

    def get_state(self) -> dict[str, Any]:
        distances = (self._distance_sum, self._distance_count)
        return {"neighbors": self.neighbors.get_state(), "distances": distances}

    def set_state(self, state: dict[str, Any]) -> None:
        self.neighbors.set_state(state["neighbors"])
        self._distance_sum, self._distance_count = state["distances"]
