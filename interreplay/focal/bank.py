"""The training tasks' rows in one matrix: a meta-batch is one gather."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from interreplay.focal.data import TaskData
from replay_buffers.storage import ACTIONS, NEXT_OBS, OBS, REWARDS, TERMINATEDS, Floats, Ints


@dataclass(frozen=True)
class Layout:
    """Names the columns of a bank's row.

    `[obs | action | context reward | new_obs | reward | terminated | next action | follows]`: what
    the encoder sees comes first, with or without new_obs. `follows` is 1 where the next action of
    the episode is known.
    """

    obs_dim: int
    action_dim: int

    @property
    def width(self) -> int:
        """Number of float32 columns."""
        return 2 * self.obs_dim + 2 * self.action_dim + 4

    @property
    def sizes(self) -> tuple[int, ...]:
        """Widths of the eight parts, in order."""
        o, a = self.obs_dim, self.action_dim
        return (o, a, 1, o, 1, 1, a, 1)

    def context(self, with_new_obs: bool) -> slice:
        """The encoder's columns."""
        seen = self.obs_dim + self.action_dim + 1
        return slice(0, seen + (self.obs_dim if with_new_obs else 0))


def bank_rows(data: TaskData, scale: Floats | None) -> Floats:
    """One task's rows `[n, width]` in the storage's order, observations divided by `scale`."""
    storage = data.storage
    schema, count = storage.schema, len(storage)
    rows = storage.rows[:count]
    divisor = np.float32(1.0) if scale is None else np.asarray(scale, np.float32)
    reward = rows[:, schema.column(REWARDS)]
    seen = reward if data.context_rewards is None else np.reshape(data.context_rewards, (-1, 1))
    successors = storage.successors(np.arange(count))
    follows = (successors >= 0).astype(np.float32)[:, None]
    parts = [
        rows[:, schema.column(OBS)] / divisor,
        rows[:, schema.column(ACTIONS)],
        seen,
        rows[:, schema.column(NEXT_OBS)] / divisor,
        reward,
        rows[:, schema.column(TERMINATEDS)],
        rows[successors, schema.column(ACTIONS)] * follows,
        follows,
    ]
    return np.concatenate(parts, axis=1, dtype=np.float32)


class TaskBank:
    """All tasks' rows, one task after the other, and how many of each are visible.

    A task's episodes stand in an order drawn from the seed, so that its first rows, which are all
    that a young run sees, are no particular ones.

    Attributes:
        rows: `[N, layout.width]` float32.
        visible: `[T]` int64, how many of a task's rows may be drawn.
    """

    def __init__(self, tasks: Sequence[TaskData], scale: Floats | None, seed: int) -> None:
        schema = tasks[0].storage.schema
        self.layout = Layout(schema.obs_dim, schema.action_dim)
        self.counts: Ints = np.array([len(data.storage) for data in tasks])
        self.starts: Ints = np.cumsum(self.counts) - self.counts
        self.visible: Ints = np.zeros(len(tasks), np.int64)
        self.rows: Floats = np.empty((self.counts.sum(), self.layout.width), np.float32)
        for index, data in enumerate(tasks):
            episodes = data.storage.episode[: len(data.storage)]
            names, ranks = np.unique(episodes, return_inverse=True)
            order = np.random.default_rng([seed, index]).permutation(len(names))
            place = np.argsort(order[ranks], kind="stable")
            start = self.starts[index]
            self.rows[start : start + len(place)] = bank_rows(data, scale)[place]

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def fingerprint(self) -> int:
        """A checksum of the rows: tells data sets apart."""
        return zlib.crc32(self.rows.data)

    def reveal(self, tasks: Ints, count: int) -> None:
        """Let `count` further rows of each named task be drawn, as far as there are any."""
        np.add.at(self.visible, tasks, count)
        np.minimum(self.visible, self.counts, out=self.visible)

    def reveal_all(self) -> None:
        """Let every row be drawn."""
        self.visible = self.counts.copy()

    def sample(self, tasks: Ints, count: int, rng: np.random.Generator) -> Floats:
        """`count` visible rows of each task, with replacement: `[len(tasks), count, width]`."""
        drawn = rng.integers(0, self.visible[tasks, None], size=(len(tasks), count))
        places = self.starts[tasks, None] + drawn
        return self.rows.take(places.ravel(), axis=0).reshape(*places.shape, -1)

    def get_state(self) -> dict[str, Any]:
        """What is visible, and of which data."""
        return {"visible": self.visible.copy(), "fingerprint": self.fingerprint}
