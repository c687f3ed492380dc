"""One command among many, and how to say it."""

import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from argument_parser import DEFAULTS, TRANSIENT, Settings
from interreplay.results import RunFolder

ROOT = Path(__file__).resolve().parents[2]
TRAINING = (sys.executable, str(ROOT / "custom_training.py"))


@dataclass(frozen=True)
class Job:
    """A command that is run once.

    Attributes:
        name: no two jobs of a launch share it; it stays the same when others come or go.
        argv: the process to start.
        cwd: where.
        folder: of the training run's results; None for any other command.
        steps: the run's budget in env steps.
        settings: of the run, where the job was read in this process.
        files: to be written before the job can run: path -> content.
    """

    name: str
    argv: tuple[str, ...]
    cwd: str
    folder: str | None = None
    steps: int | None = None
    settings: Settings | None = field(default=None, compare=False)
    files: dict[str, str] = field(default_factory=dict, compare=False)

    @property
    def command(self) -> str:
        """As one would type it."""
        return self.argv[-1] if self.folder is None else shlex.join(self.argv)

    @property
    def run(self) -> RunFolder | None:
        return None if self.folder is None else RunFolder(Path(self.folder))

    @property
    def fresh(self) -> bool:
        """Whether a training run is asked for anew, whatever results there are."""
        return self.folder is not None and "--fresh" in self.argv

    @property
    def has_finished(self) -> bool:
        """Whether this very training run has its results."""
        if self.run is None:
            return False
        if self.settings is None:
            return self.run.state == "finished"
        return self.run.finished_with(self.settings.to_dict(), ignored=TRANSIENT, defaults=DEFAULTS)

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "argv": list(self.argv),
            "cwd": self.cwd,
            "folder": self.folder,
            "steps": self.steps,
        }

    @classmethod
    def of_dict(cls, content: dict[str, Any]) -> "Job":
        return cls(**{**content, "argv": tuple(content["argv"])})
