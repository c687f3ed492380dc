"""Task families: worlds that differ in one thing, for meta-learning.

    family = find_family("cheetah-vel")
    tasks = family.tasks(100, seed=0)
    train, evaluation = family.split(100)
    env = family.make_env(tasks[train[0]])

`python -m interreplay.environments.families` prints all of them.
"""

from interreplay.environments.families.family import TaskFamily
from interreplay.environments.families.ids import environment_id
from interreplay.environments.families.registry import FAMILIES, find_family
from interreplay.environments.families.task import Task, load_tasks, save_tasks

__all__ = [
    "FAMILIES",
    "Task",
    "TaskFamily",
    "environment_id",
    "find_family",
    "load_tasks",
    "save_tasks",
]
