"""Many runs: `ray.tune` starts each, the cores say how many at once, one display shows all."""

import dataclasses
import os
import shutil
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from argument_parser import Settings
from interreplay.environments import make_env, resolve_id
from interreplay.errors import UsageError
from interreplay.launch.many_display import ManyDisplay
from interreplay.launch.private_ray import allotted_cpus, private_ray
from interreplay.launch.reporters import import_wandb
from interreplay.launch.run import folder_of, has_finished, train
from interreplay.results import RunFolder, seeds_curve

# Tune's own files and screen stay out of the way: result.json and one display are the record.
_TUNE = {
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "TUNE_WARN_THRESHOLD_S": "60",
    "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
}
_FAILURE = "failure"
_MOST = 1000
_INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class Outcome:
    """How one run ended: `error` is None when it finished."""

    settings: Settings
    folder: RunFolder
    error: str | None = None


def run_many(runs: list[Settings], max_concurrent: int | None = None) -> list[Outcome]:
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
    runs = [_absolute(run) for run in runs]
    folders = check(runs)
    warnings = {warning for run in runs if (warning := resolve_id(run.env)[1])}
    waiting = [i for i, run in enumerate(runs) if not has_finished(run, folders[i])]
    todo = [runs[i] for i in waiting]
    if waiting:
        # A place where nothing can be written is one sentence, and not one per run.
        folders[waiting[0]].open(fresh=todo[0].fresh)
        folders[waiting[0]].discard()
    share = _processes(runs[0])
    at_once = _at_once(runs[0], max_concurrent)
    errors: dict[int, str] = {}
    with ManyDisplay(_names(todo), [run.total_timesteps or 0 for run in todo]) as shown:
        for warning in sorted(warnings):
            shown.say(f"warning: {warning}")
        if len(todo) < len(runs):
            shown.say(f"{len(runs) - len(todo)} of {len(runs)} runs have finished already")
        if todo:
            shown.say(f"{len(todo)} runs, {min(at_once, len(todo))} at once, {share} core(s) each")
            failures = _tune(todo, at_once, share, shown)
            errors = {waiting[i]: error for i, error in failures.items()}
    for i, error in errors.items():
        if error == _INTERRUPTED and folders[i].state == "running":
            folders[i].end("interrupted")
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
        print(f"failed: {outcome.settings.name}: {outcome.error} ({where})")
    print(f"{len(outcomes) - len(failed)} of {len(outcomes)} runs have finished")
    if failed:
        print("the same command again runs those that have not")
    for group in sorted({outcome.folder.path.parent for outcome in outcomes}):
        print(f"results: {group}")
    return 1 if failed else 0


def _names(runs: list[Settings]) -> list[str]:
    """Each run in a few words, with its experiment where there are several."""
    several = len({run.agent_name for run in runs}) > 1
    return [f"{run.agent_name}: {run.name}" if several else run.name for run in runs]


def _absolute(run: Settings) -> Settings:
    """Paths that mean the same in another process."""
    changes: dict[str, Any] = {"local_dir": str(Path(run.local_dir).expanduser().absolute())}
    if run.log_dir is not None:
        changes["log_dir"] = str(Path(run.log_dir).expanduser().absolute())
    return dataclasses.replace(run, **changes)


def check(runs: list[Settings]) -> list[RunFolder]:
    """What can be known to fail fails now, and not in the middle of the night.

    Returns:
        The folder of each run.

    Raises:
        UsageError: an environment that can't be used, or runs that don't go together.
    """
    for run in runs:
        if run.local_mode and len(runs) > 1:
            raise UsageError("--local_mode keeps everything in one process; give it one seed")
    for name in ("num_cpus", "num_workers", "num_learners", "num_gpus", "address"):
        if len({getattr(run, name) for run in runs}) > 1:
            raise UsageError(f"runs of one command share the cores alike: a grid can't vary {name}")
    folders = [folder_of(run) for run in runs]
    owners: dict[Path, str] = {}
    for run, folder in zip(runs, folders, strict=True):
        other = owners.setdefault(folder.path, run.env)
        if other != run.env:
            raise UsageError(f"{other} and {run.env} are the same environment; drop one of them")
    for env, horizon in {(run.env, run.horizon) for run in runs}:
        make_env(env, horizon=horizon).close()
    if any(run.wandb for run in runs):
        import_wandb()
    return folders


def _at_once(run: Settings, most: int | None) -> int:
    """How many such runs fit this machine; on a cluster its own resources decide."""
    if most is None:
        most = _MOST if run.address else max(1, allotted_cpus() // _processes(run))
    if run.num_gpus and not run.address:
        import torch

        most = max(1, min(most, torch.cuda.device_count() // run.num_gpus))
    return most


def _processes(run: Settings) -> int:
    return (run.num_cpus or 1) + run.num_workers + run.num_learners


def _tune(runs: list[Settings], at_once: int, share: int, display: ManyDisplay) -> dict[int, str]:
    """Run all; the errors of those that failed, by index."""
    from ray import tune

    first = runs[0]
    bundles = [{"CPU": float(first.num_cpus or 1)}]
    bundles += [{"CPU": 1.0}] * first.num_workers
    bundles += [{"CPU": 1.0, "GPU": float(first.num_gpus > 0)}] * first.num_learners
    if first.num_gpus and not first.num_learners:
        bundles[0]["GPU"] = 1.0
    with (
        _environment(_TUNE),
        private_ray(
            share * at_once,
            gpus=first.num_gpus * at_once,
            address=first.address,
            verbose=first.verbose,
        ),
        _temporary() as storage,
    ):
        tuner = tune.Tuner(
            tune.with_resources(_trial, tune.PlacementGroupFactory(bundles)),
            param_space={
                "run": tune.grid_search(
                    [{"index": i, "settings": dataclasses.asdict(r)} for i, r in enumerate(runs)]
                )
            },
            tune_config=tune.TuneConfig(max_concurrent_trials=at_once, reuse_actors=False),
            run_config=tune.RunConfig(
                storage_path=storage, callbacks=[_shower(display)], verbose=0
            ),
        )
        results = tuner.fit()
    errors = {}
    for result in results:
        metrics = result.metrics or {}
        index = int(result.config["run"]["index"])
        if _FAILURE in metrics:
            errors[index] = metrics[_FAILURE]
        elif result.error is not None:
            errors[index] = str(result.error).splitlines()[-1]
        elif not metrics.get("finished"):
            errors[index] = _INTERRUPTED
    return errors


def _trial(config: dict[str, Any]) -> None:
    """One run in a process of Tune's; a failure is a result, too."""
    from ray import tune

    run = Settings(**config["run"]["settings"])
    shown = ("env_steps", "updates", "wall_s", "evaluation_return_mean", "updates_per_s")
    try:
        train(run, quiet=True, on_report=lambda report: tune.report({k: report[k] for k in shown}))
    except Exception as error:
        folder = folder_of(run)
        if folder.run.exists():
            with open(folder.log, "a") as log:
                log.write(traceback.format_exc())
        tune.report({_FAILURE: f"{error}" if isinstance(error, UsageError) else repr(error)})
    else:
        tune.report({"finished": True})


def _shower(display: ManyDisplay) -> Any:
    from ray import tune

    class Shower(tune.Callback):
        def on_trial_result(
            self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **_: Any
        ) -> None:
            index = trial.config["run"]["index"]
            if _FAILURE in result:
                display.failed(index, result[_FAILURE])
            elif result.get("finished"):
                display.finished(index)
            else:
                display.report(index, result)

        def __reduce__(self) -> tuple[Any, ...]:
            # Tune saves its callbacks with the experiment; a screen can't be saved.
            return tune.Callback, ()

    return Shower()


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _temporary() -> Iterator[str]:
    """Tune wants a folder for its own experiment state, which nobody reads here."""
    folder = tempfile.mkdtemp(prefix="ir-tune-")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
