"""A task family: tasks drawn from a seed, and the environment of each."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from interreplay.environments.families.rewards import Kind, Rewards
from interreplay.environments.families.task import Parameters, Task
from interreplay.errors import UsageError

# What the families need beyond numpy and Gymnasium, and how to get it.
_INSTALL = {"mujoco": "pip install 'mujoco>=4.0,<5'"}

Draw = Callable[[int, np.random.Generator], list[Parameters]]
Build = Callable[[Parameters, Rewards, str | None], gym.Env[Any, Any]]


@dataclass(frozen=True)
class TaskFamily:
    """Tasks that differ in one thing: a goal, a direction, a speed, a body.

    Attributes:
        name: as registered, and as the first word of every id, `focal/<name>/<task>`.
        draw: `(count, generator)` to as many tasks' parameters. Of the random families, a longer
            list begins with the shorter one.
        build: `(parameters, rewards, render_mode)` to an environment without a time limit.
        horizon: the time limit, in env steps. It truncates.
        n_train, n_eval: how many tasks its experiment learns from and is judged on.
        threshold: from which dense reward the sparse one begins; see `rewards.sparse`.
        reported: in which reward its experiment shows contexts and returns. Policies are trained
            on the dense one (`make_env`'s default), as FOCAL's Bellman updates are.
        ordered: its tasks come in an order that means something, so a split draws lots.
        needs: modules that must be importable once an environment is made.
        task, start, ends, observation: in words, for the table of the documentation.
    """

    name: str
    draw: Draw
    build: Build
    horizon: int
    n_train: int
    n_eval: int
    threshold: float
    task: str
    start: str
    reward: str
    ends: str
    observation: str
    reported: Kind = "dense"
    ordered: bool = False
    needs: tuple[str, ...] = ("mujoco",)

    @property
    def n_tasks(self) -> int:
        """How many tasks the experiment has; at most `n_train + n_eval`, as both may share."""
        return len(self.draw(self.n_train + self.n_eval, np.random.default_rng(0)))

    def tasks(self, count: int | None = None, seed: int = 0) -> list[Task]:
        """The first `count` tasks of this seed (default: the experiment's number).

        Raises:
            UsageError: `count` is not positive, or more than there are.
        """
        if count is None:
            count = self.n_tasks
        if count < 1:
            raise UsageError(f"{self.name}: {count} tasks were asked for; ask for 1 or more")
        drawn = self.draw(count, np.random.default_rng(seed))
        if len(drawn) < count:
            raise UsageError(
                f"{self.name} has {len(drawn)} tasks and no more, but {count} were asked for"
            )
        return [Task(self.name, k, seed, parameters) for k, parameters in enumerate(drawn)]

    def split(
        self,
        count: int | None = None,
        n_train: int | None = None,
        n_eval: int | None = None,
        *,
        seed: int = 0,
    ) -> tuple[list[int], list[int]]:
        """Indices of the tasks to train on and of those to evaluate on, each ascending.

        The first and the last of them; of an ordered family, of a seeded shuffle of them. Where
        there are fewer than `n_train + n_eval` the two share tasks (two directions: the same two).

        Raises:
            UsageError: either part is larger than the whole.
        """
        count = self.n_tasks if count is None else count
        n_train = self.n_train if n_train is None else n_train
        n_eval = self.n_eval if n_eval is None else n_eval
        if not (1 <= n_train <= count and 1 <= n_eval <= count):
            raise UsageError(
                f"{self.name}: {n_train} training and {n_eval} evaluation tasks can't be taken "
                f"from {count}; raise n_tasks"
            )
        order = np.arange(count)
        if self.ordered:
            order = np.random.default_rng(seed).permutation(count)
        return sorted(order[:n_train].tolist()), sorted(order[-n_eval:].tolist())

    def make_env(
        self,
        task: Task,
        render_mode: str | None = None,
        *,
        reward: Kind = "dense",
        horizon: int | None = None,
    ) -> gym.Env[Any, Any]:
        """The environment of one task.

        Args:
            task: of this family; drawn here, or read from a file.
            render_mode: as in Gymnasium. `rgb_array` works for every family.
            reward: the one that drives. Both are in every info.
            horizon: replaces the family's time limit, in env steps.

        Raises:
            UsageError: a task of another family, malformed parameters, or a missing requirement.
        """
        if task.family != self.name:
            raise UsageError(
                f"a task of {task.family} was given to {self.name}; variants don't share tasks"
            )
        if reward not in ("dense", "sparse"):
            raise UsageError(f"{self.name} has no {reward!r} reward; ask for dense or sparse")
        self._check(task.parameters)
        self.require()
        built = self.build(task.parameters, Rewards(self.threshold, reward), render_mode)
        return gym.wrappers.TimeLimit(built, self.horizon if horizon is None else horizon)

    def require(self) -> None:
        """Say what is missing.

        Raises:
            UsageError: a module that this family needs can't be imported.
        """
        for module in self.needs:
            try:
                importlib.import_module(module)
            except Exception as error:  # a broken library fails in its own way
                raise UsageError(
                    f"{self.name} needs {module} ({error}): {_INSTALL[module]}"
                ) from error

    def _check(self, parameters: Parameters) -> None:
        (example,) = self.draw(1, np.random.default_rng(0))
        if parameters.keys() != example.keys():
            raise UsageError(
                f"a task of {self.name} has the parameters {', '.join(example)}, not "
                f"{', '.join(parameters) or 'none'}"
            )
        for name, value in parameters.items():
            array, shape = _numbers(value), np.shape(example[name])
            if array is None or array.shape != shape or not np.isfinite(array).all():
                raise UsageError(
                    f"{name} of a {self.name} task must be finite numbers of shape {shape}"
                )


def _numbers(value: Any) -> np.ndarray | None:
    """`value` as an array of numbers; None when it is none."""
    try:
        return np.asarray(value, np.float64)
    except (TypeError, ValueError):
        return None
