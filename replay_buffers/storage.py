"""The ring of packed rows. It knows nothing of learning."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from replay_buffers import memory
from replay_buffers.errors import ReplayError

# RLlib's own column names, so that a batch goes into any of its learners as it is.
OBS, ACTIONS, REWARDS, NEXT_OBS = "obs", "actions", "rewards", "new_obs"
TERMINATEDS, TRUNCATEDS = "terminateds", "truncateds"

_BLOCK = 65_536
Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Schema:
    """Names the columns of a packed transition `[obs | action | reward | new_obs | term | trunc]`.

    The neighbour features (obs, action) are the first columns and everything that a mixture may
    mix stands before the two flags: both are plain slices.
    """

    obs_dim: int
    action_dim: int

    @property
    def width(self) -> int:
        """Number of float32 columns in a row."""
        return 2 * self.obs_dim + self.action_dim + 3

    @property
    def features(self) -> slice:
        """(obs, action): what neighbours are measured in."""
        return slice(0, self.obs_dim + self.action_dim)

    @property
    def continuous(self) -> slice:
        """Everything but the two flags."""
        return slice(0, self.width - 2)

    def column(self, name: str) -> slice:
        """The slice of one named column."""
        o, a = self.obs_dim, self.action_dim
        starts = {
            OBS: (0, o),
            ACTIONS: (o, o + a),
            REWARDS: (o + a, o + a + 1),
            NEXT_OBS: (o + a + 1, 2 * o + a + 1),
            TERMINATEDS: (self.width - 2, self.width - 1),
            TRUNCATEDS: (self.width - 1, self.width),
        }
        return slice(*starts[name])

    def name_of(self, column: int) -> str:
        """The human name of a column index, such as `new_obs[3]`."""
        for name in (OBS, ACTIONS, REWARDS, NEXT_OBS, TERMINATEDS, TRUNCATEDS):
            part = self.column(name)
            if part.start <= column < part.stop:
                scalar = part.stop - part.start == 1 and name not in (OBS, ACTIONS, NEXT_OBS)
                return name if scalar else f"{name}[{column - part.start}]"
        raise IndexError(f"column {column} is outside a row of width {self.width}")

    def pack(
        self,
        obs: npt.ArrayLike,
        actions: npt.ArrayLike,
        rewards: npt.ArrayLike,
        new_obs: npt.ArrayLike,
        terminateds: npt.ArrayLike,
        truncateds: npt.ArrayLike,
    ) -> Floats:
        """Pack columns of n transitions into `[n, width]` float32 rows."""
        rewards = np.asarray(rewards, np.float32).reshape(-1)
        rows = np.empty((len(rewards), self.width), np.float32)
        rows[:, self.column(OBS)] = obs
        rows[:, self.column(ACTIONS)] = actions
        rows[:, self.column(REWARDS)] = rewards[:, None]
        rows[:, self.column(NEXT_OBS)] = new_obs
        rows[:, -2] = terminateds
        rows[:, -1] = truncateds
        return rows

    def unpack(self, rows: Floats) -> dict[str, Floats]:
        """Named views of packed rows `[..., width]`; rewards and flags lose their last axis."""
        return {
            OBS: rows[..., self.column(OBS)],
            ACTIONS: rows[..., self.column(ACTIONS)],
            REWARDS: rows[..., self.obs_dim + self.action_dim],
            NEXT_OBS: rows[..., self.column(NEXT_OBS)],
            TERMINATEDS: rows[..., -2],
            TRUNCATEDS: rows[..., -1],
        }


def storage_bytes(schema: Schema, capacity: int) -> int:
    """Bytes of a full `Storage`: a float32 row and three int64 for each transition."""
    return capacity * (4 * schema.width + 3 * 8)


class Storage:
    """A fixed ring of transitions, one float32 row each.

    Every row ever added has a *write number* 0, 1, 2, ...; row number w lives at position
    `w % capacity` until it is overwritten. One integer therefore says both where a row is and
    whether it is still there, which is how priorities for overwritten rows and links to
    overwritten successors are recognised.

    Attributes:
        rows: `[capacity, width]` float32.
        episode, step: `[capacity]` int64, which step of which episode a row is (-1: empty).
        next: `[capacity]` int64, write number of the row's successor in its episode, -1 for none.
        written: rows added since construction.

    Raises:
        ReplayError: capacity below 1, or more bytes than the memory limit in force allows.
    """

    def __init__(self, schema: Schema, capacity: int) -> None:
        if capacity < 1:
            raise ReplayError(
                f"the replay buffer's capacity is {capacity}; set --buffer_size to 1 or more"
            )
        self.schema = schema
        self.capacity = capacity
        memory.require(self.nbytes, f"a replay buffer of {capacity:,} rows", "lower --buffer_size")
        # np.full writes every page now: a limit that was misjudged shows here, not hours later.
        self.rows: Floats = np.full((capacity, schema.width), 0.0, np.float32)
        self.episode: Ints = np.full(capacity, -1, np.int64)
        self.step: Ints = np.full(capacity, -1, np.int64)
        self.next: Ints = np.full(capacity, -1, np.int64)
        self.written = 0
        # Episode id -> (step, write number) of its newest row, while the episode is running.
        self._tails: dict[int, tuple[int, int]] = {}

    def __len__(self) -> int:
        return min(self.written, self.capacity)

    @property
    def nbytes(self) -> int:
        """Bytes of a full storage."""
        return storage_bytes(self.schema, self.capacity)

    def add(self, rows: Floats, episode: Ints, step: Ints) -> Ints:
        """Append n transitions, overwriting the oldest.

        Args:
            rows: `[n, width]` float32, actions in policy space [-1, 1].
            episode: `[n]` int64, an id that no other episode shares.
            step: `[n]` int64, the transition's index in its episode. Rows of several episodes
                may be interleaved, and an episode may arrive in any number of fragments.

        Returns:
            The positions written, oldest first; fewer than n when n exceeds the capacity.

        Raises:
            ReplayError: wrong width, a value that is not finite, an action outside [-1, 1].
        """
        self._check(rows)
        count = len(rows)
        if count == 0:
            return np.empty(0, np.int64)
        numbers = self.written + np.arange(count, dtype=np.int64)
        follows = self._link(rows, episode, step, numbers)
        kept = slice(max(0, count - self.capacity), count)
        positions: Ints = numbers[kept] % self.capacity
        self.rows[positions] = rows[kept]
        self.episode[positions] = episode[kept]
        self.step[positions] = step[kept]
        self.next[positions] = follows[kept]
        self.written += count
        return positions

    def _check(self, rows: Floats) -> None:
        if rows.ndim != 2 or rows.shape[1] != self.schema.width:
            raise ReplayError(
                f"rows have shape {rows.shape} but this storage takes "
                f"[n, {self.schema.width}]; build them with Schema.pack"
            )
        finite = np.isfinite(rows)
        if not finite.all():
            row, column = np.argwhere(~finite)[0]
            raise ReplayError(
                f"transition {self.written + row} has {self.schema.name_of(int(column))} = "
                f"{rows[row, column]}; the environment must return finite numbers"
            )
        actions = rows[:, self.schema.column(ACTIONS)]
        if actions.size and np.abs(actions).max() > 1.0:
            raise ReplayError(
                f"an action of {np.abs(actions).max():.3g} was added; the replay buffer stores "
                "actions in policy space, so divide by the environment's action bounds first"
            )

    def _link(self, rows: Floats, episode: Ints, step: Ints, numbers: Ints) -> Ints:
        """Find each new row's successor among the new rows, and link stored tails to new heads."""
        count = len(rows)
        follows: Ints = np.full(count, -1, np.int64)
        done = (rows[:, -2] > 0) | (rows[:, -1] > 0)
        order = np.lexsort((step, episode))
        e, s = episode[order], step[order]
        new_episode = np.ones(count, np.bool_)
        new_episode[1:] = e[1:] != e[:-1]
        joined = ~new_episode[1:] & (s[1:] == s[:-1] + 1) & ~done[order[:-1]]
        follows[order[:-1][joined]] = numbers[order[1:][joined]]
        heads = np.flatnonzero(new_episode)
        for first, last in zip(heads, np.append(heads[1:], count) - 1, strict=True):
            head, tail = order[first], order[last]
            known = self._tails.pop(int(e[first]), None)
            if known is not None and known[0] + 1 == s[first] and self._holds(known[1]):
                self.next[known[1] % self.capacity] = numbers[head]
            if not done[tail]:
                self._tails[int(e[first])] = (int(s[last]), int(numbers[tail]))
        if len(self._tails) > 4096:  # episodes that were abandoned without an end
            self._tails = {k: v for k, v in self._tails.items() if self._holds(v[1])}
        return follows

    def _holds(self, number: int) -> bool:
        return self.written - self.capacity <= number < self.written

    def numbers(self, positions: Ints) -> Ints:
        """The write numbers of the rows that live at `positions` now."""
        newest = self.written - 1
        return newest - (newest - positions) % self.capacity

    def alive(self, numbers: Ints) -> Bools:
        """Which write numbers have not been overwritten (and exist)."""
        return (numbers >= max(0, self.written - self.capacity)) & (numbers < self.written)

    def successors(self, positions: Ints) -> Ints:
        """Positions of the next step of the same episode, -1 where there is none in storage."""
        numbers = self.next[positions]
        return np.where(self.alive(numbers), numbers % self.capacity, -1)

    def n_step_rows(self, positions: Ints, n: int, gamma: float) -> tuple[Floats, Ints]:
        """Rows `[m, width]` that look n steps ahead, and how many steps each really does `[m]`.

        The reward is sum_k gamma^k r_{t+k}; new_obs and flags are those of the last step. A row
        looks less far where its episode ends or where the next step is not stored (yet): its
        bootstrap is then discounted by gamma to the number of steps returned here.
        """
        rows = self.rows.take(positions, axis=0)
        steps = np.ones(len(positions), np.int64)
        current, going = positions, np.arange(len(positions))
        reward, last = self.schema.column(REWARDS), slice(self.schema.column(NEXT_OBS).start, None)
        for k in range(1, n):
            following = self.successors(current)
            going, current = going[following >= 0], following[following >= 0]
            if len(going) == 0:
                break
            rows[going, reward] += np.float32(gamma**k) * self.rows[current, reward]
            rows[going, last] = self.rows[current, last]
            steps[going] += 1
        return rows, steps

    def moments(self, columns: slice) -> tuple[Doubles, Doubles, Doubles]:
        """Mean, standard deviation and largest magnitude of columns over the stored rows, float64.

        In blocks, twice over the rows: never a copy of them all.
        """
        size = len(self)
        blocks = [self.rows[s : min(s + _BLOCK, size), columns] for s in range(0, size, _BLOCK)]
        mean = sum(block.sum(axis=0, dtype=np.float64) for block in blocks) / size
        squares = sum(((block - mean) ** 2).sum(axis=0) for block in blocks)
        largest = np.max([np.abs(block).max(axis=0) for block in blocks], axis=0)
        return mean, np.sqrt(squares / size), largest.astype(np.float64)

    def get_state(self) -> dict[str, Any]:
        """Everything needed to continue, copied; only rows that were written."""
        size = len(self)
        return {
            "schema": (self.schema.obs_dim, self.schema.action_dim),
            "capacity": self.capacity,
            "rows": self.rows[:size].copy(),
            "episode": self.episode[:size].copy(),
            "step": self.step[:size].copy(),
            "next": self.next[:size].copy(),
            "written": self.written,
            "tails": dict(self._tails),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from `get_state`'s value.

        Raises:
            ReplayError: the state belongs to a storage of another shape or capacity.
        """
        mine = ((self.schema.obs_dim, self.schema.action_dim), self.capacity)
        theirs = (tuple(state["schema"]), state["capacity"])
        if mine != theirs:
            raise ReplayError(
                f"the saved replay buffer has (obs, action) dimensions {theirs[0]} and capacity "
                f"{theirs[1]:,} but this one has {mine[0]} and {mine[1]:,}; restore with the same "
                "--env and --buffer_size"
            )
        size = len(state["rows"])
        self.rows[:size] = state["rows"]
        self.episode[:size] = state["episode"]
        self.step[:size] = state["step"]
        self.next[:size] = state["next"]
        self.written = int(state["written"])
        self._tails = dict(state["tails"])
