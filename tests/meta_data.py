"""A family of tasks made here in numpy: a point in the plane that is to reach the task's goal."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from interreplay.focal.data import MetaDataset, TaskData
from replay_buffers.storage import Schema, Storage

STEP, HORIZON = 0.1, 20
Array = npt.NDArray[Any]


def goals(count: int) -> Array:
    """On the unit half circle, evenly spaced."""
    angles = np.linspace(0.0, np.pi, count)
    return np.stack([np.cos(angles), np.sin(angles)], 1).astype(np.float32)


def rollout(goal: Array, act: Callable[[Array], Array], episodes: int) -> list[Array]:
    """Observations, actions, rewards, next observations `[episodes, HORIZON, ...]` from the origin."""
    position = np.zeros((episodes, 2), np.float32)
    steps = []
    for _ in range(HORIZON):
        actions = np.clip(act(position), -1, 1).astype(np.float32)
        following = position + STEP * actions
        steps.append((position, actions, -np.linalg.norm(following - goal, axis=1), following))
        position = following
    return [np.stack(part, 1).astype(np.float32) for part in zip(*steps, strict=True)]


def task_data(
    task: int, goal: Array, episodes: int, rng: np.random.Generator, sparse: bool = False
) -> TaskData:
    """Data of a mediocre behaviour: it heads for the goal half of the time, with much noise."""
    skill = rng.uniform(0.0, 0.6, size=(episodes, 1))

    def behaviour(position: Array) -> Array:
        return skill * (goal - position) / STEP * 0.3 + 0.6 * rng.standard_normal(position.shape)

    obs, actions, rewards, new_obs = rollout(goal, behaviour, episodes)
    ends = np.zeros((episodes, HORIZON))
    ends[:, -1] = 1
    schema = Schema(2, 2)
    parts = [part.reshape(episodes * HORIZON, -1) for part in (obs, actions, rewards, new_obs)]
    never = np.zeros(episodes * HORIZON)
    rows = schema.pack(parts[0], parts[1], parts[2], parts[3], never, ends.ravel())
    storage = Storage(schema, len(rows))
    storage.add(
        rows, np.repeat(np.arange(episodes), HORIZON), np.tile(np.arange(HORIZON), episodes)
    )
    seen = np.where(parts[2] >= -0.4, (parts[2] + 0.4) / 0.4, 0).astype(np.float32)
    return TaskData(task, storage, seen[:, 0] if sparse else None)


@dataclass(frozen=True)
class PointSource:
    """A data source that makes its data; every third task is held out when `held_out`."""

    tasks: int = 4
    episodes: int = 10
    held_out: bool = False
    sparse: bool = False
    seed: int = 0
    scale: float | None = None

    def load(self) -> MetaDataset:
        rng = np.random.default_rng(self.seed)
        data = [
            task_data(task, goal, self.episodes, rng, self.sparse)
            for task, goal in enumerate(goals(self.tasks))
        ]
        test = [d for d in data if self.held_out and d.task % 3 == 1]
        train = [d for d in data if d not in test]
        scale = None if self.scale is None else np.full(2, self.scale, np.float32)
        return MetaDataset(tuple(train), tuple(test), scale)
