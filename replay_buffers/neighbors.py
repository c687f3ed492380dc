"""Exact nearest neighbours in standardized (obs, action) space.

`ExactNeighbors` is the plain search: blocked matrix products over all rows, at every query.
`NeighborTable` gives the same answer and remembers it: a row that is sampled again is only compared
with the rows that came since. Both are tested against scikit-learn, and one against the other.
"""

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import torch

from replay_buffers import memory
from replay_buffers.errors import ReplayError
from replay_buffers.storage import Bools, Doubles, Ints, Storage

# One matrix product is this many queries times this many stored rows: 8 MB of float64.
_QUERIES, _BLOCK = 256, 4096
_SLACK = 8


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


class _Products:
    """Squared distances between two sets of scaled features, into a buffer that is used again.

    Fresh pages for each product would cost more than the product itself.
    """

    def __init__(self) -> None:
        self._buffer = torch.empty(_QUERIES * _BLOCK, dtype=torch.float64)

    def __call__(self, queries: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """`[len(queries), len(rows)]`, less each query's own |q|^2; valid until the next call."""
        left = torch.cat([-2 * queries, torch.ones(len(queries), 1, dtype=torch.float64)], 1)
        right = torch.cat([rows, (rows**2).sum(1, keepdim=True)], 1)
        out = self._buffer[: len(queries) * len(rows)].view(len(queries), len(rows))
        return torch.mm(left, right.T, out=out)


def _search(
    storage: Storage, metric: Metric, products: _Products, own: Ints, k: int
) -> tuple[Ints, Doubles]:
    """The k nearest of up to `_QUERIES` rows among all others: positions and squared distances."""
    queries = metric.features(storage, own)
    best = torch.full((len(own), k), torch.inf, dtype=torch.float64)
    ids = torch.full((len(own), k), -1, dtype=torch.int64)
    for start in range(0, len(storage), _BLOCK):
        block = metric.features(storage, slice(start, min(start + _BLOCK, len(storage))))
        squares = products(queries, block)
        # A row is excluded by where it is stored, not by its distance: duplicates are neighbours.
        inside = (own >= start) & (own < start + len(block))
        squares[np.flatnonzero(inside), own[inside] - start] = torch.inf
        values, columns = squares.topk(min(k, len(block)), dim=1, largest=False)
        best, order = torch.cat([best, values], 1).topk(k, dim=1, largest=False)
        ids = torch.cat([ids, columns + start], 1).gather(1, order)
    best += (queries**2).sum(1, keepdim=True)
    return ids.numpy(), best.clamp_(min=0).numpy()


def _check_k(k: int) -> int:
    if k < 1:
        raise ReplayError(f"{k} nearest neighbours were asked for; set --kneighbors to 1 or more")
    return k


class ExactNeighbors:
    """Brute force over all stored rows, in float64, with the scale of the moment.

    Costs O(n N d) for n queries over N rows of d dimensions.

    Raises:
        ReplayError: k below 1.
    """

    def __init__(self, storage: Storage, k: int) -> None:
        self.k = _check_k(k)
        self._storage = storage
        self._products = _Products()

    def query(self, positions: Ints) -> tuple[Ints, Doubles]:
        """See `Neighbors.query`."""
        wanted = min(self.k, len(self._storage) - 1)
        ids = np.full((len(positions), self.k), -1, np.int64)
        distances = np.full((len(positions), self.k), np.inf)
        if wanted < 1:
            return ids, distances
        metric = Metric.of(self._storage)
        for start in range(0, len(positions), _QUERIES):
            part = slice(start, start + _QUERIES)
            found, squares = _search(self._storage, metric, self._products, positions[part], wanted)
            ids[part, :wanted], distances[part, :wanted] = found, np.sqrt(squares)
        return ids, distances

    def stats(self) -> dict[str, float]:
        return {}

    def get_state(self) -> dict[str, Any]:
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        pass


def table_bytes(capacity: int, k: int, slack: int = _SLACK) -> int:
    """Bytes of a full `NeighborTable`: lists of (int32, float64) and three numbers for each row."""
    return capacity * (12 * (k + slack) + 24)


class NeighborTable:
    """The exact k nearest neighbours of every row that is asked for, brought up to date when asked.

    Each row's list holds its nearest k + slack rows among those with write numbers below `seen`,
    and *every* one of those within its `radius`. Asked again, the row is compared with the rows
    written since `seen` only; those inside the radius join the list. A listed row that has been
    overwritten leaves it, which is why lists are longer than k: only a list that falls below k is
    searched anew. Each pair of rows is thus compared once, in matrix products, and rows that are
    never sampled again cost nothing.

    The scale is frozen, so that lists stay comparable, and taken anew when a standard deviation
    has moved by more than `tolerance` (of its logarithm); lists then follow as they are asked for.
    Neighbours are exact for the frozen scale.

    Args:
        storage: whose rows.
        k: neighbours wanted.
        slack: how many more a list holds.
        tolerance: how far a standard deviation may move before the scale is refreshed.

    Raises:
        ReplayError: k below 1.
    """

    def __init__(
        self, storage: Storage, k: int, *, slack: int = _SLACK, tolerance: float = 0.05
    ) -> None:
        self.k = _check_k(k)
        self._storage = storage
        self._width = k + slack
        self._tolerance = tolerance
        capacity = storage.capacity
        memory.require(
            table_bytes(capacity, k, slack),
            f"the neighbour table of {capacity:,} rows",
            "lower --buffer_size or --kneighbors",
        )
        self._ids = np.full((capacity, self._width), 0, np.int32)  # positions, nearest first
        self._squares = np.full((capacity, self._width), np.inf)  # inf behind the list's end
        self._radius = np.zeros(capacity, np.float64)  # squared
        self._seen = np.zeros(capacity, np.int64)
        self._owner = np.full(capacity, -1, np.int64)  # write number of the row a list belongs to
        self._products = _Products()
        self._metric: Metric | None = None
        self._next_check = 0
        self._counts = {"queries": 0, "searches": 0, "repairs": 0, "age": 0.0, "kth": 0.0}
        self._refreshes = 0

    def query(self, positions: Ints) -> tuple[Ints, Doubles]:
        """See `Neighbors.query`."""
        wanted = min(self.k, len(self._storage) - 1)
        ids = np.full((len(positions), self.k), -1, np.int64)
        distances = np.full((len(positions), self.k), np.inf)
        if wanted < 1:
            return ids, distances
        self._refresh_scale()
        rows = np.unique(positions)
        # A list that has seen under half of the rows gains nothing from what it knows.
        known = self._owner[rows] == self._storage.numbers(rows)
        fresh = known & (2 * (self._storage.written - self._seen[rows]) < len(self._storage))
        self._counts["age"] += float((self._storage.written - self._seen[rows[fresh]]).sum())
        short = self._catch_up(rows[fresh], wanted)
        self._search_anew(self._with_newest(np.concatenate([rows[~fresh], short])))
        self._counts["queries"] += len(rows)
        self._counts["repairs"] += len(short)
        self._counts["kth"] += float(np.sqrt(self._squares[rows, wanted - 1]).sum())
        ids[:, :wanted] = self._ids[positions, :wanted]
        distances[:, :wanted] = np.sqrt(self._squares[positions, :wanted])
        return ids, distances

    def _refresh_scale(self) -> None:
        written = self._storage.written
        if self._metric is not None and written < self._next_check:
            return
        # A look at all rows each time their number has grown by 1/64 adds 64 reads to each row.
        self._next_check = written + max(1, len(self._storage) // 64)
        current = Metric.of(self._storage)
        if self._metric is None or self._metric.drift(current) > self._tolerance:
            self._metric = current
            self._owner[: len(self._storage)] = -1
            self._refreshes += 1

    def _with_newest(self, rows: Ints) -> Ints:
        """Add the newest rows that have no list yet: a search for many costs little more."""
        if len(rows) == 0:
            return rows
        written, capacity = self._storage.written, self._storage.capacity
        numbers = np.arange(max(0, written - min(_QUERIES, capacity)), written)
        waiting = numbers[self._owner[numbers % capacity] != numbers] % capacity
        return np.union1d(rows, waiting)

    def _search_anew(self, rows: Ints) -> None:
        assert self._metric is not None
        length = min(self._width, len(self._storage) - 1)
        for start in range(0, len(rows), _QUERIES):
            own = rows[start : start + _QUERIES]
            found, squares = _search(self._storage, self._metric, self._products, own, length)
            self._ids[own, :length], self._squares[own, :length] = found, squares
            self._squares[own, length:] = np.inf
            # With every other row in the list, nothing is outside of it.
            everything = length == len(self._storage) - 1
            self._radius[own] = np.inf if everything else squares[:, -1]
            self._owner[own] = self._storage.numbers(own)
            self._seen[own] = self._storage.written
        self._counts["searches"] += len(rows)

    def _catch_up(self, rows: Ints, wanted: int) -> Ints:
        """Compare lists with the rows written since; returns the rows whose lists got too short."""
        assert self._metric is not None
        rows = rows[self._seen[rows] < self._storage.written]
        short = []
        for own in self._by_age(rows):
            dead = self._dead(own)
            at, position, square = self._newcomers(own)
            touched: Bools = np.asarray(dead.any(axis=1))
            touched[at] = True
            self._merge(own, dead, at, position, square, np.flatnonzero(touched))
            self._seen[own] = self._storage.written
            short.append(own[np.isinf(self._squares[own, wanted - 1])])
        return np.concatenate(short) if short else rows

    def _by_age(self, rows: Ints) -> Iterator[Ints]:
        """Rows with lists of about the same age (within a factor of 8) share a product."""
        pace = np.frexp(self._storage.written - self._seen[rows])[1] // 3
        for power in np.unique(pace):
            group = rows[pace == power]
            size = max(1, _QUERIES * _BLOCK // min(8 ** (int(power) + 1), _BLOCK))
            yield from (group[start : start + size] for start in range(0, len(group), size))

    def _dead(self, own: Ints) -> Bools:
        """Which entries of the lists name a row that has been overwritten since."""
        listed = self._ids[own].astype(np.int64)
        overwritten = self._storage.numbers(listed) >= self._seen[own, None]
        return overwritten & np.isfinite(self._squares[own])

    def _newcomers(self, own: Ints) -> tuple[Ints, Ints, Doubles]:
        """Rows written since each list's `seen` and inside its radius: (list, position, square)."""
        assert self._metric is not None
        storage = self._storage
        queries = self._metric.features(storage, own)
        norms = (queries**2).sum(1)
        parts = []
        first = max(int(self._seen[own].min()), storage.written - storage.capacity)
        for start in range(first, storage.written, _BLOCK):
            numbers = np.arange(start, min(start + _BLOCK, storage.written))
            window = numbers % storage.capacity
            squares = self._products(queries, self._metric.features(storage, window))
            limit = torch.from_numpy(self._radius[own]) - norms
            at, column = np.nonzero((squares <= limit[:, None]).numpy())
            new = (numbers[column] >= self._seen[own[at]]) & (window[column] != own[at])
            at, column = at[new], column[new]
            values = (squares[at, column] + norms[at]).clamp_(min=0).numpy()
            parts.append((at, window[column], values))
        ats, positions, values_ = zip(*parts, strict=True)
        return np.concatenate(ats), np.concatenate(positions), np.concatenate(values_)

    def _merge(
        self, own: Ints, dead: Bools, at: Ints, position: Ints, square: Doubles, touched: Ints
    ) -> None:
        """Take the dead out and the newcomers in, keep the nearest, keep the radius true."""
        if len(touched) == 0:
            return
        lists = own[touched]
        old = np.where(dead[touched], np.inf, self._squares[lists])
        place = np.empty(len(own), np.int64)
        place[touched] = np.arange(len(touched))
        owner = np.concatenate([np.repeat(np.arange(len(touched)), self._width), place[at]])
        squares = np.concatenate([old.ravel(), square])
        ids = np.concatenate([self._ids[lists].ravel(), position])
        order = np.lexsort((squares, owner))
        owner, squares, ids = owner[order], squares[order], ids[order]
        starts = np.searchsorted(owner, np.arange(len(touched)))
        rank = np.arange(len(owner)) - starts[owner]
        # What falls off the end was inside the radius: the radius shrinks to the last kept.
        full = rank == self._width
        spilled = owner[full & np.isfinite(squares)]
        kept = rank < self._width
        self._ids[lists[owner[kept]], rank[kept]] = ids[kept]
        self._squares[lists[owner[kept]], rank[kept]] = squares[kept]
        self._radius[lists[spilled]] = self._squares[lists[spilled], -1]

    def stats(self) -> dict[str, float]:
        """Searches and repairs per queried row, mean age of a list in rows, scale refreshes."""
        counts, queries = self._counts, max(1, self._counts["queries"])
        figures = {
            "neighbor_searches_per_query": counts["searches"] / queries,
            "neighbor_repairs_per_query": counts["repairs"] / queries,
            "neighbor_list_age": counts["age"] / queries,
            "mean_kth_distance": counts["kth"] / queries,
            "neighbor_scale_refreshes": self._refreshes,
        }
        self._counts = dict.fromkeys(counts, 0)
        return figures

    def get_state(self) -> dict[str, Any]:
        """The frozen scale; the lists come back exactly as they are asked for."""
        metric = self._metric
        return {
            "factor": None if metric is None else metric.factor.copy(),
            "center": None if metric is None else metric.center.copy(),
            "next_check": self._next_check,
            "refreshes": self._refreshes,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        factor, center = state["factor"], state["center"]
        self._metric = None if factor is None else Metric(np.array(factor), np.array(center))
        self._next_check = int(state["next_check"])
        self._refreshes = int(state["refreshes"])
        self._owner[:] = -1
