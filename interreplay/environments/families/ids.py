"""Environment ids of tasks: `focal/<family>/<task>`, such as `focal/cheetah-vel/3`."""

import re
from dataclasses import dataclass

import gymnasium as gym

from interreplay.environments.families.family import TaskFamily
from interreplay.environments.families.registry import find_family
from interreplay.environments.families.rewards import Kind
from interreplay.errors import UsageError

PREFIX = "focal/"
_FORM = re.compile(r"focal/([^/]*)/(\d+)(?:/of(\d+))?(?:/seed(\d+))?(?:/(sparse))?")


@dataclass(frozen=True)
class TaskId:
    """What an id names.

    Attributes:
        family: the family.
        index: which of its tasks.
        count: of how many (on the half circle they share the angles).
        seed: what the tasks are drawn with.
        reward: the one that drives.
    """

    family: TaskFamily
    index: int
    count: int
    seed: int
    reward: Kind

    def build(self, *, horizon: int | None = None, render_mode: str | None = None) -> gym.Env:
        """The task's environment; see `TaskFamily.make_env`."""
        task = self.family.tasks(self.count, self.seed)[self.index]
        return self.family.make_env(task, render_mode, reward=self.reward, horizon=horizon)


def parse(env: str) -> TaskId:
    """Read `focal/<family>/<task>[/of<count>][/seed<seed>][/sparse]`.

    Without them: the number of tasks of the family's experiment, seed 0, the dense reward.

    Raises:
        UsageError: another form, no such family, or no such task.
    """
    form = _FORM.fullmatch(env)
    if form is None:
        name = env.removeprefix(PREFIX).partition("/")[0]
        family = find_family(name) if name else None
        example = f"{PREFIX}{family.name if family else 'cheetah-vel'}/3"
        raise UsageError(
            f"unknown environment {env!r}: a task's id is {PREFIX}<family>/<task>, such as "
            f"{example}, with /of<count>, /seed<seed> and /sparse after it where wanted"
        )
    family = find_family(form[1])
    index, count = int(form[2]), int(form[3] or family.n_tasks)
    seed = int(form[4] or 0)
    if index >= count:
        raise UsageError(
            f"unknown environment {env!r}: of {count} tasks the last is {count - 1}; "
            f"/of<count> after it makes another number"
        )
    family.tasks(count, seed)  # which refuses more than there are
    return TaskId(family, index, count, seed, "sparse" if form[5] else "dense")


def environment_id(
    family: str, index: int, count: int, seed: int = 0, *, sparse: bool = False
) -> str:
    """The id of a task, with everything that names it."""
    return f"{PREFIX}{family}/{index}/of{count}/seed{seed}" + ("/sparse" if sparse else "")
