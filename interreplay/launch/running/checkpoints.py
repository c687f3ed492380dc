"""Checkpoints of a run: written whole or not at all, checked before they are read.

A checkpoint is a folder `step_<env steps>`: RLlib's own files (so `Algorithm.from_checkpoint` reads
it) and `complete.json`, written last, which says what it is of and how large each file is.
"""

import json
import os
import shutil
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from interreplay.errors import UsageError
from interreplay.launch.running.kind import Asked
from interreplay.results import RunFolder

KEPT = 2
FORMAT = 1
_MARK = "complete.json"


@dataclass(frozen=True)
class Mark:
    """What `complete.json` says.

    Attributes:
        env, trainer, recipe: of the run.
        env_steps, updates, training_iteration: how far it had come.
        lines: of result.json at that time; later ones are not part of a run that goes on here.
        wall_s: seconds that the run had taken.
        buffer: whether the replay buffer is in it.
        files: path inside the checkpoint -> bytes.
        interreplay, format: versions of this project and of the checkpoint.
    """

    env: str
    trainer: str
    recipe: str
    env_steps: int
    updates: int
    training_iteration: int
    lines: int
    wall_s: float
    buffer: bool
    files: dict[str, int]
    interreplay: str
    format: int = FORMAT

    @property
    def bytes(self) -> int:
        return sum(self.files.values())


def save(
    algorithm: Any, folder: RunFolder, place: tuple[str, ...], *, wall_s: float, buffer: bool
) -> tuple[Path, Mark]:
    """Write a checkpoint under a temporary name, make sure of it, mark it, rename it.

    A crash at any moment leaves the ones before as they are; the last two are kept.

    Args:
        place: environment, trainer and recipe.

    Raises:
        UsageError: no room on the disk, or a folder that can't be written.
    """
    final = folder.checkpoints / f"step_{algorithm.env_steps:010d}"
    temporary = final.with_name(final.name + ".tmp")
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        algorithm.save_to_path(str(temporary))
        files = {str(p.relative_to(temporary)): p for p in temporary.rglob("*") if p.is_file()}
        for path in files.values():
            _sync(path)
        env, trainer, recipe = place
        mark = Mark(
            env=env,
            trainer=trainer,
            recipe=recipe,
            env_steps=algorithm.env_steps,
            updates=algorithm.updates,
            training_iteration=algorithm.training_iteration,
            lines=folder.lines(),
            wall_s=wall_s,
            buffer=buffer,
            files={name: path.stat().st_size for name, path in sorted(files.items())},
            interreplay=_version(),
        )
        (temporary / _MARK).write_text(json.dumps(asdict(mark), indent=1) + "\n")
        _sync(temporary / _MARK)
        shutil.rmtree(final, ignore_errors=True)
        os.replace(temporary, final)
        _sync(folder.checkpoints)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise UsageError(
            f"the checkpoint {final} can't be written ({error.strerror or error}); the one before "
            "it is whole: make room, and the same command goes on from there"
        ) from error
    for old in sorted(folder.checkpoints.glob("step_*[0-9]"))[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return final, mark


def newest(folder: RunFolder) -> Path | None:
    """The last whole checkpoint of a run; None where there is none."""
    whole = [p for p in folder.checkpoints.glob("step_*[0-9]") if (p / _MARK).exists()]
    return max(whole, default=None)


def check(path: Path, place: tuple[str, ...]) -> Mark:
    """Read what a checkpoint says of itself.

    Args:
        path: a checkpoint, or the folder of a run: its last one.
        place: environment, trainer and recipe that it must be of.

    Raises:
        UsageError: it is none, is damaged, of a newer version, or of another kind of run.
    """
    try:
        content = json.loads((path / _MARK).read_text())
        version = content["format"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{path} is no whole checkpoint ({_MARK} is missing or damaged); a run's checkpoints "
            "are the folders step_... in its folder checkpoints"
        ) from error
    if version > FORMAT:
        raise UsageError(
            f"the checkpoint {path} was written by a newer interreplay "
            f"({content.get('interreplay')}); update this one"
        )
    mark = Mark(**content)
    for name, size in mark.files.items():
        found = (path / name).stat().st_size if (path / name).exists() else 0
        if found != size:
            raise UsageError(
                f"the checkpoint {path} is damaged: {name} has {found:,} of {size:,} bytes; delete "
                "it, and the same command goes on from the one before"
            )
    names = ("environment", "trainer", "recipe")
    theirs = (mark.env, mark.trainer, mark.recipe)
    for name, mine, other in zip(names, place, theirs, strict=True):
        if mine != other:
            raise UsageError(
                f"the checkpoint {path} is of the {name} {other}, and this run of {mine}; choose "
                f"a checkpoint of {mine}, or run {other}"
            )
    return mark


def load(algorithm: Any, path: Path) -> None:
    """Put a freshly built algorithm where the checkpoint's was.

    Raises:
        UsageError: its networks or buffer are of other sizes or settings.
    """
    try:
        algorithm.restore_from_path(str(path))
    except Exception as error:  # torch, pickle and RLlib each have their own words for it
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise UsageError(
            f"the checkpoint {path} does not fit this run's settings ({reason}); its own are in "
            f"{path.parent.parent / 'config.json'}"
        ) from error


def restore_point(settings: Asked) -> Path | None:
    """The checkpoint that `--restore_path` means: itself, or the last one of a run's folder.

    Raises:
        UsageError: there is none, it is of another kind of run, or past this run's budget.
    """
    if settings.restore_path is None:
        return None
    given = Path(settings.restore_path).expanduser().absolute()
    if not given.is_dir():
        raise UsageError(f"--restore_path {settings.restore_path}: there is no such folder")
    path = newest(RunFolder(given)) or given
    mark = check(path, settings.place[1:4])
    if mark.env_steps >= (settings.total_timesteps or 0):
        raise UsageError(
            f"the checkpoint {path} is at {mark.env_steps:,} env steps, and --total_timesteps is "
            f"{settings.total_timesteps:,}; raise it"
        )
    return path


def _version() -> str:
    try:
        return metadata.version("interreplay")
    except metadata.PackageNotFoundError:
        return "source"


def _sync(path: Path) -> None:
    """Wait until the disk has it, so that a rename never stands for contents that are lost."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
