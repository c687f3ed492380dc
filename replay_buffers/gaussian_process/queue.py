"""Synthetic rows made in advance: a short queue for each stored row, within a bound of memory."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from replay_buffers import memory
from replay_buffers.storage import Bools, Floats, Ints

# Synthetic rows in a queue. A neighbourhood of k rows among N changes about every N / k env steps,
# in which a row is sampled 256 R / k times: more would be thrown away unused.
DEPTH = 16
_GB = 1_000_000_000


@dataclass(frozen=True)
class Fill:
    """New queues for n rows.

    Attributes:
        rows: `[n, DEPTH, width]` float32.
        hyperparameters: `[n, H]` float64 that belong to them; None where all rows share theirs.
    """

    rows: Floats
    hyperparameters: npt.NDArray[np.float64] | None = None


def slot_bytes(width: int, hyperparameters: int) -> int:
    """Of one row's queue: the rows, its hyperparameters, and four numbers."""
    return DEPTH * 4 * width + 8 * hyperparameters + 4 * 8


def queue_slots(capacity: int, gigabytes: float, width: int, hyperparameters: int = 0) -> int:
    """How many rows can have a queue."""
    return min(capacity, max(1, int(gigabytes * _GB) // slot_bytes(width, hyperparameters)))


def queue_bytes(capacity: int, gigabytes: float, width: int, hyperparameters: int = 0) -> int:
    """Bytes of a `SyntheticQueue`."""
    slots = queue_slots(capacity, gigabytes, width, hyperparameters)
    return slots * slot_bytes(width, hyperparameters) + 8 * capacity


class SyntheticQueue:
    """Each row's next synthetic rows, as long as its neighbourhood is the one they were made from.

    A row's queue is made when it is sampled first; made again when it has been used up or the
    row's token (a number of its neighbourhood) is another; and given up, oldest first, when rows
    without one need the memory.

    Args:
        capacity: positions of the storage.
        gigabytes: how much memory the queues may take.
        width: of a synthetic row.
        hyperparameters: numbers that each row keeps of its own.
    """

    def __init__(
        self, capacity: int, gigabytes: float, width: int, hyperparameters: int = 0
    ) -> None:
        slots = queue_slots(capacity, gigabytes, width, hyperparameters)
        memory.require(
            queue_bytes(capacity, gigabytes, width, hyperparameters),
            f"the queue of synthetic rows of {slots:,} rows",
            "lower --queue_gb",
        )
        # np.full writes every page now, as the storage does.
        self._rows: Floats = np.full((slots, DEPTH, width), 0.0, np.float32)
        self._hyperparameters = np.full((slots, hyperparameters), 0.0)
        self._owner: Ints = np.full(slots, -1, np.int64)  # position that a slot belongs to
        self._number: Ints = np.full(slots, -1, np.int64)  # write number of its row
        self._token: Ints = np.full(slots, 0, np.int64)
        self._used: Ints = np.full(slots, DEPTH, np.int64)
        self._slot: Ints = np.full(capacity, -1, np.int64)
        self._next = 0
        self._counts = {"taken": 0, "filled": 0}

    def take(
        self,
        own: Ints,
        numbers: Ints,
        tokens: Ints,
        fill: Callable[[Ints, Any, Bools], Fill],
    ) -> Floats:
        """One synthetic row `[n, width]` for each of rows `own` `[n]`, in any order, repeats too.

        Args:
            own: positions.
            numbers, tokens: `[n]`, write numbers of the rows and numbers of their neighbourhoods.
            fill: given indices `[f]` into `own`, the hyperparameters `[f, H]` kept for them and
                which of these stand (`[f]` bool: the neighbourhood is unchanged), makes queues.
                Hyperparameters of rows that had none are NaN.
        """
        taken: Floats = np.empty((len(own), self._rows.shape[2]), np.float32)
        waiting = np.arange(len(own))
        while len(waiting):
            # Whoever needs a slot keeps it until the end of this round.
            waiting, later = self._at_most(own, waiting)
            first, _, rank = occurrences(own[waiting])
            self._prepare(own, numbers, tokens, waiting[first], fill)
            slots = self._slot[own[waiting]]
            place = self._used[slots] + rank
            here = place < DEPTH
            taken[waiting[here]] = self._rows[slots[here], place[here]]
            np.add.at(self._used, slots[here], 1)
            waiting = np.concatenate([waiting[~here], later])
        self._counts["taken"] += len(own)
        return taken

    def _at_most(self, own: Ints, waiting: Ints) -> tuple[Ints, Ints]:
        """Those whose rows have room for a queue at the same time, and the others."""
        _, inverse = np.unique(own[waiting], return_inverse=True)
        fits = inverse < len(self._owner)
        return waiting[fits], waiting[~fits]

    def _prepare(
        self,
        own: Ints,
        numbers: Ints,
        tokens: Ints,
        index: Ints,
        fill: Callable[[Ints, Any, Bools], Fill],
    ) -> None:
        """Give rows `own[index]`, all different, a queue with something in it."""
        slots = self._slot[own[index]]
        known = (slots >= 0) & (self._number[slots] == numbers[index])
        same = known & (self._token[slots] == tokens[index])
        empty = index[~(same & (self._used[slots] < DEPTH))]
        if len(empty) == 0:
            return
        stands, known = (flags[np.isin(index, empty)] for flags in (same, known))
        kept = np.where(known[:, None], self._hyperparameters[self._slot[own[empty]]], np.nan)
        made = fill(empty, kept, stands)
        slots = self._slots_for(own[empty], protected=self._slot[own[index]])
        self._rows[slots] = made.rows
        if made.hyperparameters is not None:
            self._hyperparameters[slots] = made.hyperparameters
        self._number[slots], self._token[slots] = numbers[empty], tokens[empty]
        self._used[slots] = 0
        self._counts["filled"] += len(empty)

    def _slots_for(self, positions: Ints, protected: Ints) -> Ints:
        """Slots of the positions, taken from the oldest others where they have none."""
        slots = self._slot[positions]
        homeless = np.flatnonzero(slots < 0)
        if len(homeless) == 0:
            return slots
        look = min(len(self._owner), len(homeless) + len(protected))
        oldest = (self._next + np.arange(look)) % len(self._owner)
        free = oldest[~np.isin(oldest, protected)][: len(homeless)]
        evicted = self._owner[free]
        self._slot[evicted[evicted >= 0]] = -1
        self._owner[free] = positions[homeless]
        self._slot[positions[homeless]] = free
        self._next = int(free[-1] + 1) % len(self._owner)
        return self._slot[positions]

    def stats(self) -> dict[str, float]:
        """The share of rows that were there already, and how many rows have a queue."""
        taken = max(1, self._counts["taken"])
        figures = {
            "gp_queue_hits": 1 - self._counts["filled"] / taken,
            "gp_queue_rows": int((self._owner >= 0).sum()),
        }
        self._counts = dict.fromkeys(self._counts, 0)
        return figures

    def get_state(self) -> dict[str, Any]:
        """The queues that are in use, copied."""
        slots = np.flatnonzero(self._owner >= 0)
        names = ("_rows", "_hyperparameters", "_owner", "_number", "_token", "_used")
        return {
            "slots": slots,
            "next": self._next,
            "counts": dict(self._counts),
            **{name: getattr(self, name)[slots].copy() for name in names},
        }

    def set_state(self, state: dict[str, Any]) -> None:
        slots = state["slots"]
        self._owner[:] = -1
        self._slot[:] = -1
        for name in ("_rows", "_hyperparameters", "_owner", "_number", "_token", "_used"):
            getattr(self, name)[slots] = state[name]
        self._slot[self._owner[slots]] = slots
        self._next = int(state["next"])
        self._counts = dict(state["counts"])


def occurrences(values: Ints) -> tuple[Ints, Ints, Ints]:
    """Index of each value's first occurrence; of each element its value's place in that list, and
    the how-manieth of its value it is."""
    _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    sorted_inverse = inverse[order]
    starts = np.searchsorted(sorted_inverse, np.arange(len(first)))
    rank = np.empty(len(values), np.int64)
    rank[order] = np.arange(len(values)) - starts[sorted_inverse]
    return first, inverse, rank
