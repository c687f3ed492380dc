"""Exact nearest neighbours in standardized (obs, action) space.

`ExactNeighbors` is the plain search: blocked matrix products over all rows, at every query. The
buffer uses `neighbor_table.NeighborTable`, which gives the same answer and remembers it; this is
what that one is tested against.
"""

from typing import Any, Protocol

import numpy as np
import torch

from replay_buffers.errors import ReplayError
from replay_buffers.parts import Stateless
from replay_buffers.storage import Doubles, Ints, Storage

# One matrix product is this many queries times this many stored rows: 8 MB of float64.
QUERIES, BLOCK = 256, 4096


class Neighbors(Protocol):
    """The k nearest stored rows of stored rows."""

    k: int

    def query(self, positions: Ints) -> tuple[Ints, Doubles]:
        """Positions `[n, k]` (-1 where there are fewer) and distances `[n, k]` (inf there)."""

    def stats(self) -> dict[str, float]:
        """Figures since the last call, for the run's metrics."""

    def get_state(self) -> dict[str, Any]: ...

    def set_state(self, state: dict[str, Any]) -> None: ...


class Metric:
    """Euclidean distance after dividing each (obs, action) dimension by its standard deviation.

    A dimension that (almost) never varies gets the factor 0, which leaves it out: dividing by a
    standard deviation near 0 would let its rounding noise decide who is whose neighbour. Distances
    are differences, so the mean is taken off first to keep |x|^2 - 2 xy + |y|^2 accurate.
    """

    def __init__(self, factor: Doubles, center: Doubles) -> None:
        self.factor, self.center = factor, center

    @classmethod
    def of(cls, storage: Storage) -> "Metric":
        """The metric of the rows stored now."""
        mean, std, largest = storage.moments(storage.schema.features)
        varies = std > 1e-6 * np.maximum(1.0, largest)
        factor = np.divide(1.0, std, out=np.zeros_like(std), where=varies)
        return cls(factor, mean)

    def drift(self, other: "Metric") -> float:
        """The largest |log ratio| of two factors; inf when a dimension came in or dropped out."""
        used = self.factor > 0
        if not np.array_equal(used, other.factor > 0):
            return np.inf
        ratios = np.abs(np.log(self.factor[used] / other.factor[used]))
        return float(ratios.max(initial=0.0))

    def features(self, storage: Storage, positions: Ints | slice) -> torch.Tensor:
        """Scaled features `[n, d]` float64 of stored rows."""
        rows = storage.rows[positions, storage.schema.features]
        return torch.from_numpy((rows - self.center) * self.factor)


class Products:
    """Squared distances between two sets of scaled features, into a buffer that is used again.

    Fresh pages for each product would cost more than the product itself.
    """

    def __init__(self) -> None:
        self._buffer = torch.empty(QUERIES * BLOCK, dtype=torch.float64)

    def __call__(self, queries: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """`[len(queries), len(rows)]`, less each query's own |q|^2; valid until the next call."""
        left = torch.cat([-2 * queries, torch.ones(len(queries), 1, dtype=torch.float64)], 1)
        right = torch.cat([rows, (rows**2).sum(1, keepdim=True)], 1)
        out = self._buffer[: len(queries) * len(rows)].view(len(queries), len(rows))
        return torch.mm(left, right.T, out=out)


def search(
    storage: Storage, metric: Metric, products: Products, own: Ints, k: int
) -> tuple[Ints, Doubles]:
    """The k nearest of up to `QUERIES` rows among all others: positions and squared distances."""
    queries = metric.features(storage, own)
    best = torch.full((len(own), k), torch.inf, dtype=torch.float64)
    ids = torch.full((len(own), k), -1, dtype=torch.int64)
    for start in range(0, len(storage), BLOCK):
        block = metric.features(storage, slice(start, min(start + BLOCK, len(storage))))
        squares = products(queries, block)
        # A row is excluded by where it is stored, not by its distance: duplicates are neighbours.
        inside = (own >= start) & (own < start + len(block))
        squares[np.flatnonzero(inside), own[inside] - start] = torch.inf
        values, columns = squares.topk(min(k, len(block)), dim=1, largest=False)
        best, order = torch.cat([best, values], 1).topk(k, dim=1, largest=False)
        ids = torch.cat([ids, columns + start], 1).gather(1, order)
    best += (queries**2).sum(1, keepdim=True)
    return ids.numpy(), best.clamp_(min=0).numpy()


def check_k(k: int) -> int:
    if k < 1:
        raise ReplayError(f"{k} nearest neighbours were asked for; set --kneighbors to 1 or more")
    return k


class ExactNeighbors(Stateless):
    """Brute force over all stored rows, in float64, with the scale of the moment.

    Costs O(n N d) for n queries over N rows of d dimensions.

    Raises:
        ReplayError: k below 1.
    """

    def __init__(self, storage: Storage, k: int) -> None:
        self.k = check_k(k)
        self._storage = storage
        self._products = Products()

    def query(self, positions: Ints) -> tuple[Ints, Doubles]:
        """See `Neighbors.query`."""
        wanted = min(self.k, len(self._storage) - 1)
        ids = np.full((len(positions), self.k), -1, np.int64)
        distances = np.full((len(positions), self.k), np.inf)
        if wanted < 1:
            return ids, distances
        metric = Metric.of(self._storage)
        for start in range(0, len(positions), QUERIES):
            part = slice(start, start + QUERIES)
            found, squares = search(self._storage, metric, self._products, positions[part], wanted)
            ids[part, :wanted], distances[part, :wanted] = found, np.sqrt(squares)
        return ids, distances
