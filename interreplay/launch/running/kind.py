"""What running knows of a run, whatever its kind: replay's, RLlib's own, FOCAL's.

A kind is one class with this shape, in a file of its own under `launch/kinds/`. Folder, journal,
display, many runs, signals and resuming exist once, in this room, and know no more than this.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from interreplay.results import RunFolder


class Asked(Protocol):
    """The settings that every kind of run has."""

    @property
    def total_timesteps(self) -> int | None: ...

    @property
    def checkpoint_freq(self) -> int: ...

    @property
    def local_dir(self) -> str: ...

    @property
    def log_dir(self) -> str | None: ...

    @property
    def fresh(self) -> bool: ...

    @property
    def restore_path(self) -> str | None: ...

    @property
    def wandb(self) -> bool: ...

    @property
    def verbose(self) -> bool: ...

    @property
    def place(self) -> tuple[str, str, str, str, int]: ...

    @property
    def name(self) -> str: ...

    def to_dict(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Machine:
    """What a run takes of the machine.

    Attributes:
        cpus: cores for the run, None for all that are allotted.
        env_runners, learners: processes of Ray's that compute all the time, one core each.
        others: further processes of Ray's.
        gpus: one per learner.
        address: of a running Ray cluster; None for a private Ray.
        wait_s: seconds to wait before anything is started.
    """

    cpus: int | None = None
    env_runners: int = 0
    learners: int = 0
    others: int = 0
    gpus: int = 0
    address: str | None = None
    wait_s: float = field(default=0.0, compare=False)

    @property
    def processes(self) -> int:
        """Of Ray's, all together."""
        return self.env_runners + self.learners + self.others

    @property
    def cores(self) -> int:
        """That one of several runs is given; the process that learns takes one unless told."""
        return (self.cpus or 1) + self.processes

    def threads(self, allotted: int) -> int:
        """Torch threads of this process, where `allotted` cores may be used."""
        return max(1, (self.cpus or allotted) - self.env_runners - self.learners)


class Kind(Protocol):
    """One run of some kind. It can be pickled: many runs have a process each."""

    @property
    def settings(self) -> Asked: ...

    @property
    def machine(self) -> Machine: ...

    @property
    def resumes(self) -> bool:
        """Whether a checkpoint holds all that decides how the run goes on."""
        ...

    @property
    def same_results(self) -> "SameResults":
        """Which settings may differ between two runs of the same results."""
        ...

    def checked(self) -> tuple["Kind", str | None]:
        """The same with everything resolved that only the machine here knows, and a warning.

        Raises:
            UsageError: an environment, algorithm or setting that can't be used.
        """
        ...

    def card(self, threads: int, folder: RunFolder) -> dict[str, str]:
        """What is about to run, shown before it does."""
        ...

    def build(self) -> Any:
        """The algorithm, inside a Ray that runs.

        It has `env_steps`, `updates`, `progress`, `say`, and RLlib's `train`, `evaluate`,
        `save_to_path` and `stop`; its reports have `env_steps` and `updates` at the top. Where the
        kind `resumes`, also `stop_asked`, `episodes_begin_anew` and RLlib's `restore_from_path`.
        """
        ...

    def first_figures(self, algorithm: Any) -> dict[str, Any]:
        """What the report at step 0 has besides the evaluation."""
        ...


@dataclass(frozen=True)
class SameResults:
    """When a finished run answers for another one's settings.

    Attributes:
        ignored: settings that change nothing in the results.
        defaults: what settings meant that an older run has not written down.
    """

    ignored: frozenset[str] = frozenset()
    defaults: Mapping[str, Any] = field(default_factory=dict)
