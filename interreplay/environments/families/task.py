"""A task as a plain value: what it is made of, and how it is kept in a file."""

import contextlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interreplay.errors import UsageError

# Numbers and nested lists of numbers by name: the same before and after JSON.
Parameters = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """One task of a family.

    Attributes:
        family: the family's registered name, variant included.
        index: its place in the family's list of tasks.
        seed: what the list was drawn with.
        parameters: what sets this task apart, e.g. `{"velocity": 1.7}`.
    """

    family: str
    index: int
    seed: int
    parameters: Parameters

    def as_dict(self) -> dict[str, Any]:
        """As JSON knows it; `from_dict` takes it back."""
        return {
            "family": self.family,
            "index": self.index,
            "seed": self.seed,
            "parameters": self.parameters,
        }

    @staticmethod
    def from_dict(values: dict[str, Any]) -> "Task":
        """The task that `as_dict` wrote.

        Raises:
            UsageError: a field is missing, unknown or of another type.
        """
        wanted: dict[str, type] = {"family": str, "index": int, "seed": int, "parameters": dict}
        for name, kind in wanted.items():
            if type(values.get(name)) is not kind:
                raise UsageError(
                    f"a task's {name!r} is {values.get(name)!r}, not of type {kind.__name__}; "
                    "write the file with save_tasks"
                )
        if set(values) - set(wanted):
            extra = ", ".join(sorted(set(values) - set(wanted)))
            raise UsageError(f"a task has the unknown field {extra}; write it with save_tasks")
        return Task(**values)


def save_tasks(path: str | os.PathLike[str], tasks: Sequence[Task]) -> None:
    """Write tasks as JSON, one a line; the file is whole or not there.

    Raises:
        UsageError: the file can't be written.
    """
    lines = ",\n".join(json.dumps(task.as_dict()) for task in tasks)
    target = Path(path)
    unfinished = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_text(f"[\n{lines}\n]\n")
        unfinished.replace(target)
    except OSError as error:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise UsageError(
            f"{path} can't be written: {error.strerror}; choose another folder"
        ) from error


def load_tasks(path: str | os.PathLike[str]) -> list[Task]:
    """Read what `save_tasks` wrote.

    Raises:
        UsageError: no such file, or not a list of tasks.
    """
    try:
        values = json.loads(Path(path).read_text())
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}; check the path") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not JSON ({error}); write it with save_tasks") from error
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise UsageError(f"{path} holds no list of tasks; write it with save_tasks")
    return [Task.from_dict(value) for value in values]
