"""Many runs: the cores say how many at once, one display shows all, one failure stops no other."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interreplay.errors import UsageError
from interreplay.launch.running.kind import Kind, Machine
from interreplay.launch.running.private_ray import allotted_cpus
from interreplay.launch.running.reporters import import_wandb
from interreplay.launch.running.run import folder_of, has_finished
from interreplay.launch.running.tune import INTERRUPTED, run_with_tune
from interreplay.launch.screen.many_display import ManyDisplay
from interreplay.results import RunFolder, seeds_curve

_MOST = 1000


@dataclass(frozen=True)
class Outcome:
    """How one run ended: `error` is None when it finished."""

    run: Kind
    folder: RunFolder
    error: str | None = None


@dataclass(frozen=True)
class Checked:
    """A run that can begin, where its results go, and what its user should know."""

    run: Kind
    folder: RunFolder
    warning: str | None


def run_many(runs: Sequence[Kind], max_concurrent: int | None = None) -> list[Outcome]:
    """Train all `runs`, several at once; those that have finished before are left as they are.

    A run that fails does not stop the others. Each group of seeds gets a picture, `seeds.png`.

    Args:
        runs: no two with the same folder.
        max_concurrent: runs at once; by default as many as have their cores on this machine.

    Returns:
        One outcome a run, in the order given.

    Raises:
        UsageError: settings that can't be used, before anything is started.
    """
    checked = check([_absolute(run) for run in runs])
    runs, folders = [one.run for one in checked], [one.folder for one in checked]
    waiting = [i for i, run in enumerate(runs) if not has_finished(run, folders[i])]
    todo = [runs[i] for i in waiting]
    if waiting:
        # A place where nothing can be written is one sentence, and not one per run.
        folders[waiting[0]].open(fresh=todo[0].settings.fresh)
        folders[waiting[0]].discard()
    machine = runs[0].machine
    at_once = _at_once(machine, max_concurrent)
    errors: dict[int, str] = {}
    with ManyDisplay(_names(todo), [run.settings.total_timesteps or 0 for run in todo]) as shown:
        for warning in sorted({one.warning for one in checked if one.warning}):
            shown.say(f"warning: {warning}")
        if len(todo) < len(runs):
            shown.say(f"{len(runs) - len(todo)} of {len(runs)} runs have finished already")
        if todo:
            side_by_side = f"{min(at_once, len(todo))} at once, {machine.cores} core(s) each"
            shown.say(f"{len(todo)} runs, {side_by_side}")
            failures = run_with_tune(todo, at_once, shown)
            errors = {waiting[i]: error for i, error in failures.items()}
    for i, error in errors.items():
        if error == INTERRUPTED and folders[i].state == "running":
            folders[i].end("interrupted")  # it had no time to say so itself
    for group in {folder.path.parent for folder in folders}:
        seeds_curve(group)
    return [
        Outcome(run, folder, errors.get(i))
        for i, (run, folder) in enumerate(zip(runs, folders, strict=True))
    ]


def report(outcomes: list[Outcome]) -> int:
    """Say how many runs finished and how to go on with the others; the exit code, 0 or 1."""
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    for outcome in failed:
        where = outcome.folder.log if outcome.folder.log.exists() else "nothing was written"
        print(f"failed: {outcome.run.settings.name}: {outcome.error} ({where})")
    print(f"{len(outcomes) - len(failed)} of {len(outcomes)} runs have finished")
    if failed:
        print("the same command again runs those that have not")
    for group in sorted({outcome.folder.path.parent for outcome in outcomes}):
        print(f"results: {group}")
    return 1 if failed else 0


def check(runs: Sequence[Kind]) -> list[Checked]:
    """What can be known to fail fails now, and not in the middle of the night.

    Raises:
        UsageError: an environment that can't be used, or runs that don't go together.
    """
    if len({run.machine for run in runs}) > 1:
        raise UsageError(
            "runs of one command share the cores alike, but these differ in cores, processes, "
            "GPUs or cluster; start them by separate commands"
        )
    checked = []
    owners: dict[Path, str] = {}
    for run in runs:
        resolved, warning = run.checked()
        folder = folder_of(resolved)
        if folder.path in owners:
            raise UsageError(
                f"{owners[folder.path]} and {run.settings.name} are the same run, in "
                f"{folder.path}; drop one of them"
            )
        owners[folder.path] = run.settings.name
        checked.append(Checked(resolved, folder, warning))
    if any(run.settings.wandb for run in runs):
        import_wandb()
    return checked


def _names(runs: list[Kind]) -> list[str]:
    """Each run in a few words, with its experiment where there are several."""
    several = len({run.settings.place[0] for run in runs}) > 1
    return [
        f"{run.settings.place[0]}: {run.settings.name}" if several else run.settings.name
        for run in runs
    ]


def _absolute(run: Any) -> Kind:
    """The same run with paths that mean the same in another process."""
    settings = run.settings
    changes = {"local_dir": str(Path(settings.local_dir).expanduser().absolute())}
    if settings.log_dir is not None:
        changes["log_dir"] = str(Path(settings.log_dir).expanduser().absolute())
    kind: Kind = dataclasses.replace(run, settings=dataclasses.replace(settings, **changes))
    return kind


def _at_once(machine: Machine, most: int | None) -> int:
    """How many such runs fit this machine; on a cluster its own resources decide."""
    if most is None:
        most = _MOST if machine.address else max(1, allotted_cpus() // machine.cores)
    if machine.gpus and not machine.address:
        import torch

        most = max(1, min(most, torch.cuda.device_count() // machine.gpus))
    return most
