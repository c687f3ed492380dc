"""What the loader hands over: frozen transitions per task."""

from dataclasses import dataclass
from typing import Protocol

from interreplay.errors import UsageError
from replay_buffers.storage import Floats, Storage


@dataclass(frozen=True)
class TaskData:
    """One task's offline transitions.

    Attributes:
        task: the task's index in its family.
        storage: obs as recorded, actions in [-1, 1], rewards dense. Nothing is added any more.
        context_rewards: `[len(storage)]` float32, by storage position: what the encoder sees as
            reward (the sparse one). None: the dense ones.
    """

    task: int
    storage: Storage
    context_rewards: Floats | None = None


@dataclass(frozen=True)
class MetaDataset:
    """The tasks to learn from and those held out; all of one family.

    Attributes:
        observation_scale: `[obs_dim]` float32 that every observation is divided by, in the data
            as well as when acting; None: observations are used as they are.

    Raises:
        UsageError: no task to learn from, an empty one, or tasks of different sizes.
    """

    train: tuple[TaskData, ...]
    test: tuple[TaskData, ...] = ()
    observation_scale: Floats | None = None

    def __post_init__(self) -> None:
        if not self.train:
            raise UsageError("there is no task to learn from; run policy_train.py first")
        schema = self.train[0].storage.schema
        for data in (*self.train, *self.test):
            count = len(data.storage)
            if count == 0:
                raise UsageError(
                    f"task {data.task} has no transitions; run policy_train.py for it again"
                )
            if data.storage.schema != schema:
                raise UsageError(
                    f"task {data.task} has other observation or action sizes than task "
                    f"{self.train[0].task}; point data_dir to the data of one family"
                )
            if data.context_rewards is not None and len(data.context_rewards) != count:
                raise UsageError(
                    f"task {data.task} has {len(data.context_rewards)} context rewards for {count} "
                    "transitions; run policy_train.py for it again"
                )

    @property
    def dimensions(self) -> tuple[int, int]:
        """Sizes of observation and action."""
        schema = self.train[0].storage.schema
        return schema.obs_dim, schema.action_dim


class DataSource(Protocol):
    """Where the data come from; small enough to stand in every checkpoint (paths, not rows)."""

    def load(self) -> MetaDataset:
        """Read the data; the same rows in the same order every time."""
        ...
