"""A run as its folder has it: begun, reported, checkpointed, ended. Ours and RLlib's alike."""

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from interreplay.errors import UsageError, add_sentence, told
from interreplay.launch.display import Display
from interreplay.launch.reporters import Asked, Reporters
from interreplay.results import RunFolder, learning_curve
from replay_buffers.errors import ReplayError

_CHECKPOINTS_KEPT = 2


def in_folder(
    folder: RunFolder,
    display: Display,
    work: Callable[[], None],
    *,
    finished: bool,
    fresh: bool,
    warning: str | None,
) -> RunFolder:
    """Do the work of a run in its folder, or say that it was done before.

    Args:
        folder: the run's.
        display: where to say so.
        work: trains; ends with `carry_out`.
        finished: the folder holds this run's results already.
        fresh: an earlier run in the folder is deleted.
        warning: about the environment's id.

    Raises:
        UsageError: the settings or the folder can't be used; nothing is left behind when that shows
            before the first report.
    """
    if warning:
        display.say(f"warning: {warning}")
    if finished:
        display.say(
            f"this run has finished already: {folder.path}\n"
            f"its learning curve: {folder.figure}\nadd --fresh to run it again"
        )
        return folder
    folder.open(fresh=fresh)
    with _accounted(folder):
        work()
    display.say(f"results: {folder.path}\nlearning curve: {folder.figure}")
    return folder


@contextmanager
def _accounted(folder: RunFolder) -> Iterator[None]:
    """Whatever ends the block is written into run.json; before the first report, nothing stays."""
    try:
        yield
    except BaseException as error:
        usage = _usage_error(error)
        if not folder.begun:
            folder.discard()
        else:
            interrupted = isinstance(error, KeyboardInterrupt | SystemExit)  # Ctrl-C, SIGTERM
            if usage is None and not interrupted:
                add_sentence(error, f"what there is of the run is in {folder.path}")
            folder.end("interrupted" if interrupted else "failed", error=told(usage or error))
        if usage is not None and usage is not error:
            raise usage from error
        raise
    folder.end("finished")


def _usage_error(error: BaseException | None) -> UsageError | None:
    """The user's mistake inside `error`, which may come wrapped from a worker process."""
    while error is not None:
        if isinstance(error, UsageError):
            return error
        if isinstance(error, ReplayError):
            return UsageError(str(error))
        error = getattr(error, "cause", None) or error.__cause__ or error.__context__
    return None


def carry_out(
    folder: RunFolder,
    settings: Asked,
    algorithm: Any,
    display: Display,
    started: float,
    facts: dict[str, Any],
    first_figures: dict[str, Any],
    on_report: Callable[[dict[str, Any]], None] | None = None,
) -> None:
    """Train `algorithm` up to its budget, write everything down, draw the curve, stop it.

    Args:
        algorithm: has `env_steps`, `updates`, `progress`, and RLlib's `train`, `evaluate`,
            `save_to_path` and `stop`; its reports have `env_steps` and `updates` at the top.
        started: `time.perf_counter()` at the run's begin.
        facts: go into run.json.
        first_figures: go into the report at step 0.
    """
    try:
        # Now it has shown that it works: only from here on is anything written or moved.
        first = _first_report(algorithm) | first_figures
        moved = folder.begin(settings.to_dict(), facts, fresh=settings.fresh)
        display.log_to(_log_file(folder, settings))
        if moved:
            display.say(f"an earlier run, unfinished or of other settings, is now in {moved}")
        _loop(folder, settings, algorithm, display, first, started, on_report)
    finally:
        display.stop()
        algorithm.stop()
        _remove_empty(algorithm.logdir)
    learning_curve(folder)


def _remove_empty(logdir: str) -> None:
    """RLlib makes a folder under ~/ray_results for every algorithm; ours writes nothing there."""
    for path in (Path(logdir), Path(logdir).parent):
        with contextlib.suppress(OSError):  # not empty: somebody else's
            path.rmdir()


def _log_file(folder: RunFolder, settings: Asked) -> Path:
    """Where what the run shows is kept: in its folder, or in `--log_dir` under the run's name."""
    if settings.log_dir is None:
        return folder.log
    name = "_".join(folder.path.parts[-4:])
    path = Path(settings.log_dir).expanduser() / f"{name}.log"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    except OSError as error:
        raise UsageError(
            f"--log_dir {settings.log_dir} can't be written ({error.strerror}); choose another"
        ) from error
    return path


def _first_report(algorithm: Any) -> dict[str, Any]:
    """Step 0: an untrained policy's evaluation."""
    return {
        "env_steps": 0,
        "updates": 0,
        "training_iteration": 0,
        "evaluation": algorithm.evaluate(),
    }


def _loop(
    folder: RunFolder,
    settings: Asked,
    algorithm: Any,
    display: Display,
    first: dict[str, Any],
    started: float,
    on_report: Callable[[dict[str, Any]], None] | None,
) -> None:
    assert settings.total_timesteps is not None
    algorithm.progress, algorithm.say = display.advance, display.say
    reporters = Reporters.of(folder, settings)
    display.start()

    def publish(report: dict[str, Any]) -> None:
        _publish(folder, reporters, display, report, started)
        if on_report is not None:
            on_report(report)

    try:
        publish(first)
        while algorithm.env_steps < settings.total_timesteps:
            report = algorithm.train()
            if algorithm.env_steps >= settings.total_timesteps and "evaluation" not in report:
                report["evaluation"] = algorithm.evaluate()
            publish(report)
            iteration = report["training_iteration"]
            if settings.checkpoint_freq and iteration % settings.checkpoint_freq == 0:
                save_checkpoint(algorithm, folder)
        save_checkpoint(algorithm, folder)
    finally:
        reporters.close()


def _publish(
    folder: RunFolder,
    reporters: Reporters,
    display: Display,
    report: dict[str, Any],
    started: float,
) -> None:
    """Put the figures that matter at the top of a report; write it, draw it, show it."""
    report.pop("config", None)  # config.json has it, resolved
    returns = report.get("evaluation", {}).get("env_runners", {}).get("episode_returns")
    report |= {
        "env_steps": int(report["env_steps"]),
        "updates": int(report["updates"]),
        "wall_s": time.perf_counter() - started,
        "evaluation_return_mean": float(np.mean(returns)) if returns else None,
        "evaluation_return_std": float(np.std(returns)) if returns else None,
        "env_steps_per_s": report.get("env_steps_per_s"),
        "updates_per_s": report.get("updates_per_s"),
    }
    folder.append(report)
    reporters.report(dict(_scalars(report)), report["env_steps"])
    display.report(report)


def _scalars(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _scalars(value, f"{prefix}{key}/")
        elif isinstance(value, int | float | np.number) and not isinstance(value, bool):
            yield f"{prefix}{key}", float(value)


def save_checkpoint(algorithm: Any, folder: RunFolder) -> Path:
    """Write an RLlib checkpoint (buffer included) under a temporary name, then rename it.

    The last two are kept, so that a crash while writing one leaves a whole one.
    """
    final = folder.checkpoints / f"step_{algorithm.env_steps:010d}"
    temporary = final.with_name(final.name + ".tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    algorithm.save_to_path(str(temporary))
    shutil.rmtree(final, ignore_errors=True)
    os.replace(temporary, final)
    for old in sorted(folder.checkpoints.glob("step_*"))[:-_CHECKPOINTS_KEPT]:
        shutil.rmtree(old)
    return final
