"""Several runs in processes of `ray.tune`'s: it starts each when its cores are free."""

import dataclasses
import os
import shutil
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from interreplay.errors import UsageError
from interreplay.launch.running.kind import Kind, Machine
from interreplay.launch.running.private_ray import private_ray
from interreplay.launch.running.run import folder_of, train
from interreplay.launch.running.stopping import Stop, stop_on_signals
from interreplay.launch.screen.many_display import ManyDisplay
from interreplay.results import RunFolder

INTERRUPTED = "interrupted"
# Tune's own files and screen stay out of the way: result.json and one display are the record.
_TUNE = {
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "TUNE_WARN_THRESHOLD_S": "60",
    "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # a stop is passed on to the runs, which save first
}
_FAILURE, _STOPPED = "failure", "stopped"
# How often a run begins again whose machine died, and how long it waits for what is left of it.
_LIVES, _PATIENCE_S = 3, 60.0
_SHOWN = ("env_steps", "updates", "wall_s", "evaluation_return_mean", "updates_per_s")


def run_with_tune(runs: list[Kind], at_once: int, display: ManyDisplay) -> dict[int, str]:
    """Train all `runs`, which take the same of the machine.

    On a cluster, a run whose machine dies begins again on another, from its last checkpoint.

    Args:
        at_once: how many run side by side.
        display: shows them, by their index in `runs`.

    Returns:
        The errors of those that failed, by index; `INTERRUPTED` for one that did not end.
    """
    from ray import tune

    machine = runs[0].machine
    with (
        _environment(_TUNE),
        private_ray(
            machine.cores * at_once,
            gpus=machine.gpus * at_once,
            address=machine.address,
            verbose=runs[0].settings.verbose,
        ),
        _temporary(machine, runs[0].settings.local_dir) as storage,
        stop_on_signals() as stop,
    ):
        wish = Path(storage) / "stop"
        tuner = tune.Tuner(
            tune.with_resources(
                tune.with_parameters(_trial, runs=runs, wish=wish),
                tune.PlacementGroupFactory(_bundles(machine)),
            ),
            param_space={"index": tune.grid_search(list(range(len(runs))))},
            tune_config=tune.TuneConfig(max_concurrent_trials=at_once, reuse_actors=False),
            run_config=tune.RunConfig(
                storage_path=storage,
                callbacks=[_shower(display, stop, wish)],
                # A run's own failure is a result (`_trial`): what is left are dead processes.
                failure_config=tune.FailureConfig(max_failures=_LIVES if machine.address else 0),
                verbose=0,
            ),
        )
        results = tuner.fit()
    if stop():
        display.say(f"stopped by {stop.reason}: the same command goes on")
    errors = {}
    for result in results:
        metrics = result.metrics or {}
        index = int(result.config["index"])
        if _FAILURE in metrics:
            errors[index] = metrics[_FAILURE]
        elif result.error is not None:
            errors[index] = str(result.error).splitlines()[-1]
        elif not metrics.get("finished"):
            errors[index] = INTERRUPTED
    return errors


def _bundles(machine: Machine) -> list[dict[str, float]]:
    """What a trial reserves: its own process first, then each process that it starts."""
    bundles = [{"CPU": float(machine.cpus or 1)}]
    bundles += [{"CPU": 1.0}] * (machine.env_runners + machine.others)
    bundles += [{"CPU": 1.0, "GPU": float(machine.gpus > 0)}] * machine.learners
    if machine.gpus and not machine.learners:
        bundles[0]["GPU"] = float(machine.gpus)
    return bundles


def _trial(config: dict[str, Any], runs: list[Kind], wish: Path) -> None:
    """One run in a process of Tune's; a failure is a result, too.

    A file `wish` says that all are to stop.
    """
    from ray import tune

    run = runs[config["index"]]
    if wish.exists():
        tune.report({_STOPPED: True})
        return
    began = wish.with_name(f"began_{config['index']}")
    again = began.exists()
    began.touch()
    try:
        if again:
            run = _going_on(run)
            _wait_for(folder_of(run))
        train(
            run,
            quiet=True,
            on_report=lambda report: tune.report({k: report[k] for k in _SHOWN}),
            stop=_Sometimes(wish.exists),
        )
    except KeyboardInterrupt:
        tune.report({_STOPPED: True})
    except Exception as error:
        folder = folder_of(run)
        if folder.run.exists():
            with open(folder.log, "a") as log:
                log.write(traceback.format_exc())
        tune.report({_FAILURE: f"{error}" if isinstance(error, UsageError) else repr(error)})
    else:
        tune.report({"finished": True})


def _going_on(run: Any) -> Kind:
    """Without `--fresh`, which would throw away what the first life has done."""
    kind: Kind = dataclasses.replace(run, settings=dataclasses.replace(run.settings, fresh=False))
    return kind


def _wait_for(folder: RunFolder) -> None:
    """Until the process of the first life is gone, whose machine may die slower than it."""
    until = time.monotonic() + _PATIENCE_S
    while folder.locked and time.monotonic() < until:
        time.sleep(0.5)


class _Sometimes:
    """Asks a slow question twice a second, and answers as often as it is asked."""

    def __init__(self, question: Callable[[], bool]) -> None:
        self._question, self._next, self._answer = question, 0.0, False

    def __call__(self) -> bool:
        if not self._answer and time.monotonic() >= self._next:
            self._answer, self._next = self._question(), time.monotonic() + 0.5
        return self._answer


def _shower(display: ManyDisplay, stop: Stop, wish: Path) -> Any:
    from ray import tune

    class Shower(tune.Callback):
        def on_step_begin(self, iteration: int, trials: list[Any], **_: Any) -> None:
            if stop() and not wish.exists():
                wish.touch()
                display.say(f"{stop.reason}: the runs write their checkpoints and end")

        def on_trial_result(
            self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **_: Any
        ) -> None:
            index = trial.config["index"]
            if _FAILURE in result:
                display.failed(index, result[_FAILURE])
            elif result.get("finished"):
                display.finished(index)
            elif not result.get(_STOPPED):
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
def _temporary(machine: Machine, results: str) -> Iterator[str]:
    """Tune wants a folder for its own experiment state, which nobody reads here.

    On a cluster all machines must see it, as they see the folder of results.
    """
    if machine.address:
        Path(results).mkdir(parents=True, exist_ok=True)
    folder = tempfile.mkdtemp(prefix=".ir-tune-", dir=results if machine.address else None)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
