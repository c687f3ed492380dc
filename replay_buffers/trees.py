"""A wide reduction tree: sums or minima over many leaves, changed and searched in batches."""

from collections.abc import Callable
from typing import Any

import numpy as np

from replay_buffers.storage import Doubles, Ints

_FAN_OUT = 64


def _level_sizes(leaves: int) -> list[int]:
    """Nodes of each level, leaves first, each padded to whole blocks."""
    sizes: list[int] = []
    length = leaves
    while not sizes or length > 1:
        sizes.append(-(-length // _FAN_OUT) * _FAN_OUT)
        length = sizes[-1] // _FAN_OUT
    return sizes


def tree_bytes(leaves: int) -> int:
    """Bytes of a `WideTree`."""
    return 8 * sum(_level_sizes(leaves))


class WideTree:
    """Keeps `reduce` over blocks of 64 leaves, over blocks of 64 blocks, and so on up to a root.

    A change recomputes the touched blocks from their members, so no error accumulates: the root
    is the reduction of the leaves at any time. With 64 children a node a million leaves are four
    levels deep, and each level is one numpy operation for the whole batch.

    Args:
        size: number of leaves.
        reduce: `np.add` or `np.minimum`.
        empty: the value of a leaf that was never set (the reduction's neutral element).
    """

    def __init__(self, size: int, reduce: Any, empty: float) -> None:
        self._reduce: Callable[..., Doubles] = reduce.reduce
        self._levels: list[Doubles] = [np.full(n, empty, np.float64) for n in _level_sizes(size)]
        self._root = self._empty = empty

    def clear(self) -> None:
        """Make every leaf empty again."""
        for level in self._levels:
            level[:] = self._empty
        self._root = self._empty

    @property
    def leaves(self) -> Doubles:
        """The leaves, padded to a multiple of 64."""
        return self._levels[0]

    @property
    def root(self) -> float:
        """The reduction over all leaves."""
        return self._root

    def get(self, positions: Ints) -> Doubles:
        """The leaves at `positions`."""
        values: Doubles = self._levels[0][positions]
        return values

    def set(self, positions: Ints, values: Doubles) -> None:
        """Set leaves; of two values for one position the last one counts."""
        if len(positions) == 0:
            return
        self._levels[0][positions] = values
        blocks = np.unique(positions // _FAN_OUT)
        for lower, upper in zip(self._levels, self._levels[1:], strict=False):
            upper[blocks] = self._reduce(lower.reshape(-1, _FAN_OUT)[blocks], axis=1)
            blocks = np.unique(blocks // _FAN_OUT)
        self._root = float(self._reduce(self._levels[-1]))

    def find(self, targets: Doubles) -> Ints:
        """For a tree of sums: the leaf in whose share of [0, root) each target falls.

        Never returns a leaf of value 0, whatever the rounding of the partial sums.
        """
        index = np.zeros(len(targets), np.int64)
        left = targets.astype(np.float64)
        for level in reversed(self._levels):
            children = level.reshape(-1, _FAN_OUT)[index]
            ends = np.cumsum(children, axis=1)
            # Rounding may push a target past its block's sum: stay on the last child with a share.
            last = _FAN_OUT - 1 - np.argmax(children[:, ::-1] > 0, axis=1)
            child = np.minimum((ends <= left[:, None]).sum(axis=1), last)
            rows = np.arange(len(index))
            left = np.maximum(left - (ends[rows, child] - children[rows, child]), 0.0)
            # A child of value 0 in the middle is skipped by `<=`; one at the start never counts.
            index = index * _FAN_OUT + child
        return index
