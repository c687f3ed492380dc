"""A run as its folder has it: begun, reported, checkpointed, ended. Ours and RLlib's alike."""

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from interreplay.errors import Interrupted, UsageError, add_sentence, told
from interreplay.launch.running.checkpoints import check, load, newest, restore_point, save
from interreplay.launch.running.kind import Asked, Kind
from interreplay.launch.running.reporters import Reporters
from interreplay.launch.running.stopping import stop_on_signals
from interreplay.launch.screen.display import Display
from interreplay.results import RunFolder, learning_curve
from replay_buffers.errors import ReplayError

CHECKPOINT_EVERY_S = 600.0
# What Tune's base class counts since a process began means nothing in a run that went on.
_OF_TUNE = ("config", "iterations_since_restore", "time_since_restore", "timesteps_since_restore")


@contextmanager
def accounted(folder: RunFolder) -> Iterator[None]:
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
            with contextlib.suppress(OSError):  # a full disk has been said already
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


def resumable(run: Kind, folder: RunFolder) -> Path | None:
    """The checkpoint that the same command goes on from; None where it begins anew."""
    same = run.same_results
    if run.settings.fresh or not run.resumes:
        return None
    unfinished = folder.unfinished_with(
        run.settings.to_dict(), ignored=same.ignored, defaults=dict(same.defaults)
    )
    return newest(folder) if unfinished else None


def carry_out(
    folder: RunFolder,
    run: Kind,
    algorithm: Any,
    display: Display,
    started: float,
    facts: dict[str, Any],
    on_report: Callable[[dict[str, Any]], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> None:
    """Train `algorithm` up to its budget, write everything down, draw the curve, stop it.

    Args:
        algorithm: of `run.build()`.
        started: `time.perf_counter()` at the run's begin.
        facts: go into run.json.
        stop: asked after every env step whether to end, after a checkpoint.
    """
    try:
        # Now it has shown that it works: only from here on is anything written or moved.
        checkpoint = resumable(run, folder)
        if checkpoint is not None:
            first = None
            started -= _go_on(folder, run, algorithm, checkpoint, display, facts)
        else:
            first = _begin(folder, run, algorithm, display, facts)
        journal = _Journal(folder, run, algorithm, display, started, on_report)
        _loop(journal, first, stop)
    finally:
        display.stop()
        algorithm.stop()
        _remove_empty(algorithm.logdir)
    learning_curve(folder)


def _begin(
    folder: RunFolder, run: Kind, algorithm: Any, display: Display, facts: dict[str, Any]
) -> dict[str, Any]:
    """Start a run, from nothing or from another run's checkpoint; its first report."""
    settings = run.settings
    if (path := restore_point(settings)) is not None:
        load(algorithm, path)
        facts = {**facts, "restored": str(path)}
    first = _first_report(algorithm) | run.first_figures(algorithm)
    moved = folder.begin(settings.to_dict(), facts, fresh=settings.fresh)
    display.log_to(_log_file(folder, settings))
    if moved:
        display.say(f"an earlier run, unfinished or of other settings, is now in {moved}")
    return first


def _go_on(
    folder: RunFolder,
    run: Kind,
    algorithm: Any,
    checkpoint: Path,
    display: Display,
    facts: dict[str, Any],
) -> float:
    """Take up an interrupted run; the seconds that it had taken by then."""
    mark = check(checkpoint, run.settings.place[1:4])
    load(algorithm, checkpoint)
    folder.resume(mark.lines, {**facts, "env_steps": mark.env_steps})
    display.log_to(_log_file(folder, run.settings))
    display.say(f"going on from env step {mark.env_steps:,}: {checkpoint}")
    if (reason := algorithm.episodes_begin_anew) is not None:
        display.say(f"the episodes under way could not go on ({reason}); new ones begin")
    if not mark.buffer:
        display.say("the checkpoint has no replay buffer: it is filled before updates go on")
    return mark.wall_s


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
    """Before the first update: usually of an untrained policy, at step 0."""
    return {
        "env_steps": algorithm.env_steps,
        "updates": algorithm.updates,
        "training_iteration": algorithm.training_iteration,
        "evaluation": algorithm.evaluate(),
    }


@dataclass
class _Journal:
    """Where the reports and checkpoints of a run that is under way go."""

    folder: RunFolder
    run: Kind
    algorithm: Any
    display: Display
    started: float
    on_report: Callable[[dict[str, Any]], None] | None

    def __post_init__(self) -> None:
        begin = self.algorithm.env_steps if self.folder.lines() else 0
        self._reporters = Reporters.of(self.folder, self.run.settings, begin)
        self._saved_at = time.monotonic()
        self._iteration_saved = self.algorithm.training_iteration
        earlier = [r["evaluation_return_mean"] for r in self.folder.evaluations()]
        self._best: float | None = max(earlier, default=None)

    def publish(self, report: dict[str, Any]) -> None:
        """Put the figures that matter at the top of a report; write it, draw it, show it."""
        for name in _OF_TUNE:
            report.pop(name, None)
        returns = report.get("evaluation", {}).get("env_runners", {}).get("episode_returns")
        mean = float(np.mean(returns)) if returns else None
        if mean is not None:
            self._best = mean if self._best is None else max(mean, self._best)
        report |= {
            "env_steps": int(report["env_steps"]),
            "updates": int(report["updates"]),
            "wall_s": time.perf_counter() - self.started,
            "evaluation_return_mean": mean,
            "evaluation_return_std": float(np.std(returns)) if returns else None,
            "evaluation_return_best": self._best,
            "env_steps_per_s": report.get("env_steps_per_s"),
            "updates_per_s": report.get("updates_per_s"),
        }
        self.folder.append(report)
        self._reporters.report(dict(_scalars(report)), report["env_steps"])
        self.display.report(report)
        if self.on_report is not None:
            self.on_report(report)

    def save_if_due(self) -> None:
        """Every `checkpoint_freq` iterations, and every ten minutes."""
        often = self.run.settings.checkpoint_freq
        iteration = self.algorithm.training_iteration
        if (often and iteration - self._iteration_saved >= often) or (
            time.monotonic() - self._saved_at >= CHECKPOINT_EVERY_S
        ):
            self.save()

    def save(self) -> Path:
        settings = self.run.settings
        path, _ = save(
            self.algorithm,
            self.folder,
            settings.place[1:4],
            wall_s=time.perf_counter() - self.started,
            buffer=self.algorithm.saves_buffer,
        )
        self._saved_at = time.monotonic()
        self._iteration_saved = self.algorithm.training_iteration
        return path

    def close(self) -> None:
        self._reporters.close()


def _loop(
    journal: _Journal, first: dict[str, Any] | None, also_stop: Callable[[], bool] | None
) -> None:
    algorithm, display = journal.algorithm, journal.display
    budget = journal.run.settings.total_timesteps
    assert budget is not None
    algorithm.progress, algorithm.say = display.advance, display.say
    display.start()
    try:
        if first is not None:
            journal.publish(first)
        with stop_on_signals(also_stop, saved=journal.run.resumes) as stop:
            algorithm.stop_asked = stop
            try:
                while algorithm.env_steps < budget:
                    report = algorithm.train()
                    if algorithm.env_steps >= budget and "evaluation" not in report:
                        report["evaluation"] = algorithm.evaluate()
                    journal.publish(report)
                    if stop() and algorithm.env_steps < budget:
                        raise Interrupted
                    journal.save_if_due()
            except Interrupted:
                path = journal.save()
                display.say(
                    f"stopped by {stop.reason} at env step {algorithm.env_steps:,}: the same "
                    f"command goes on from {path}"
                )
                stop.leave()
        journal.save()
    finally:
        journal.close()


def _scalars(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _scalars(value, f"{prefix}{key}/")
        elif isinstance(value, int | float | np.number) and not isinstance(value, bool):
            yield f"{prefix}{key}", float(value)
