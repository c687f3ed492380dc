"""Exact nearest neighbours in standardized (obs, action) space.

This is the plain search: one blocked matrix product per query, always right, never stale. Faster
ones have the same two methods and are tested against it.
"""

from typing import Protocol

import numpy as np
import torch

from replay_buffers.errors import ReplayError
from replay_buffers.storage import Doubles, Floats, Ints, Storage

# One matrix product is this many queries times this many stored rows: 8 MB of float64.
_QUERIES, _BLOCK = 256, 4096


class Neighbors(Protocol):
    """The k nearest stored rows of stored rows."""

    k: int

    def query(self, positions: Ints) -> tuple[Ints, Doubles]:
        """Positions `[n, k]` (-1 where there are fewer) and distances `[n, k]` (inf there)."""


def feature_scale(storage: Storage) -> Doubles:
    """1 / standard deviation of each (obs, action) dimension over the stored rows.

    A dimension that (almost) never varies gets 0, which leaves it out of every distance: dividing
    by a standard deviation near 0 would let its rounding noise decide who is whose neighbour.
    """
    rows = storage.rows[: len(storage), storage.schema.features].astype(np.float64)
    std = rows.std(axis=0)
    varies = std > 1e-6 * np.maximum(1.0, np.abs(rows).max(axis=0))
    return np.divide(1.0, std, out=np.zeros_like(std), where=varies)


class ExactNeighbors:
    """Brute force over all stored rows, in float64.

    A row is never its own neighbour: it is excluded by where it is stored, not by its distance, so
    a duplicate of a row is a neighbour like any other.

    Raises:
        ReplayError: k below 1.
    """

    def __init__(self, storage: Storage, k: int) -> None:
        if k < 1:
            raise ReplayError(
                f"{k} nearest neighbours were asked for; set --kneighbors to 1 or more"
            )
        self._storage = storage
        self._product = torch.empty(_QUERIES * _BLOCK, dtype=torch.float64)
        self.k = k

    def query(self, positions: Ints) -> tuple[Ints, Doubles]:
        """See `Neighbors.query`. Costs O(n N d) for n queries over N rows of d dimensions."""
        size = len(self._storage)
        wanted = min(self.k, size - 1)
        ids = np.full((len(positions), self.k), -1, np.int64)
        distances = np.full((len(positions), self.k), np.inf)
        if wanted < 1:
            return ids, distances
        # Distances are differences: taking the mean off first keeps |x|^2 - 2xy + |y|^2 accurate.
        scale = feature_scale(self._storage)
        features = self._storage.rows[:size, self._storage.schema.features]
        center = features.mean(axis=0, dtype=np.float64)
        unique, back = np.unique(positions, return_inverse=True)
        squares = np.empty((len(unique), wanted))
        found = np.empty((len(unique), wanted), np.int64)
        for start in range(0, len(unique), _QUERIES):
            own = unique[start : start + _QUERIES]
            part = slice(start, start + len(own))
            squares[part], found[part] = self._nearest(own, features, center, scale, wanted)
        ids[:, :wanted] = found[back]
        distances[:, :wanted] = np.sqrt(squares[back])
        return ids, distances

    def _nearest(
        self, own: Ints, features: Floats, center: Doubles, scale: Doubles, k: int
    ) -> tuple[Doubles, Ints]:
        """The k smallest squared distances of each row `own` and where they are, ascending."""
        queries = torch.from_numpy((features[own] - center) * scale)
        # |x|^2 - 2 q x as one product; |q|^2 is the same for all x, so it is added at the end.
        left = torch.cat([-2 * queries, torch.ones(len(own), 1, dtype=torch.float64)], 1)
        best = torch.full((len(own), k), torch.inf, dtype=torch.float64)
        best_ids = torch.full((len(own), k), -1, dtype=torch.int64)
        for start in range(0, len(features), _BLOCK):
            block = torch.from_numpy((features[start : start + _BLOCK] - center) * scale)
            right = torch.cat([block, (block**2).sum(1, keepdim=True)], 1)
            # Fresh pages would cost more than the product itself: write into the same buffer.
            squares = self._product[: len(own) * len(block)].view(len(own), len(block))
            torch.mm(left, right.T, out=squares)
            inside = (own >= start) & (own < start + len(block))
            squares[np.flatnonzero(inside), own[inside] - start] = torch.inf
            values, columns = squares.topk(min(k, len(block)), dim=1, largest=False)
            best, order = torch.cat([best, values], 1).topk(k, dim=1, largest=False)
            best_ids = torch.cat([best_ids, columns + start], 1).gather(1, order)
        best += (queries**2).sum(1, keepdim=True)
        return best.clamp_(min=0).numpy(), best_ids.numpy()
