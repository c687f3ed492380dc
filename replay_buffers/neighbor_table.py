"""The exact nearest neighbours of rows, remembered and brought up to date as rows come in."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from replay_buffers import memory
from replay_buffers.neighbors import BLOCK, QUERIES, Metric, Products, check_k, search
from replay_buffers.storage import Bools, Doubles, Ints, Storage

_SLACK = 8
_LISTS = ("_ids", "_squares", "_radius", "_seen", "_owner")


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
        self.k = check_k(k)
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
        self._products = Products()
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
        numbers = np.arange(max(0, written - min(QUERIES, capacity)), written)
        waiting = numbers[self._owner[numbers % capacity] != numbers] % capacity
        return np.union1d(rows, waiting)

    def _search_anew(self, rows: Ints) -> None:
        assert self._metric is not None
        length = min(self._width, len(self._storage) - 1)
        for start in range(0, len(rows), QUERIES):
            own = rows[start : start + QUERIES]
            found, squares = search(self._storage, self._metric, self._products, own, length)
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
            size = max(1, QUERIES * BLOCK // min(8 ** (int(power) + 1), BLOCK))
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
        for start in range(first, storage.written, BLOCK):
            numbers = np.arange(start, min(start + BLOCK, storage.written))
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
        """The frozen scale, the lists of the rows that have one, and the figures so far.

        Lists could be searched anew, but neighbours at (almost) equal distance would then come in
        another order and a continued run would draw other partners.
        """
        metric = self._metric
        rows = np.flatnonzero(self._owner >= 0)
        return {
            "factor": None if metric is None else metric.factor.copy(),
            "center": None if metric is None else metric.center.copy(),
            "next_check": self._next_check,
            "refreshes": self._refreshes,
            "width": self._width,
            "list_rows": rows,
            **{name: getattr(self, name)[rows] for name in _LISTS},
            "counts": dict(self._counts),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        factor, center = state["factor"], state["center"]
        self._metric = None if factor is None else Metric(np.array(factor), np.array(center))
        self._next_check = int(state["next_check"])
        self._refreshes = int(state["refreshes"])
        self._counts = dict(state["counts"])
        self._owner[:] = -1
        if state["width"] == self._width:  # else searched anew, as they are asked for
            for name in _LISTS:
                getattr(self, name)[state["list_rows"]] = state[name]
