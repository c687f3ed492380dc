"""One function trains one run, in this process; whoever needs many of them calls it many times."""

import time
import warnings
from collections.abc import Callable
from typing import Any

from rich.console import Console

from interreplay.errors import UsageError
from interreplay.launch.running.checkpoints import restore_point
from interreplay.launch.running.journal import accounted, carry_out, resumable
from interreplay.launch.running.kind import Kind, Machine
from interreplay.launch.running.private_ray import allotted_cpus, private_ray
from interreplay.launch.running.reporters import import_wandb
from interreplay.launch.screen.display import Display
from interreplay.results import RunFolder


def folder_of(run: Kind) -> RunFolder:
    """Where a run's results go, which need not exist yet."""
    return RunFolder.locate(run.settings.local_dir, *run.settings.place)


def has_finished(run: Kind, folder: RunFolder) -> bool:
    """Whether `folder` holds the finished run of these settings, so that nothing is left to do."""
    same = run.same_results
    return not run.settings.fresh and folder.finished_with(
        run.settings.to_dict(), ignored=same.ignored, defaults=dict(same.defaults)
    )


def describe(run: Kind, folder: RunFolder) -> str:
    """One line: what would run, and in which folder."""
    if has_finished(run, folder):
        state = "finished already"
    elif (checkpoint := resumable(run, folder)) is not None:
        state = f"to go on from {checkpoint.name}"
    else:
        state = "to run"
    steps = f"{run.settings.total_timesteps:,} env steps"
    return f"{run.settings.name}: {steps}, {state}, {folder.path}"


def train(
    run: Kind,
    *,
    quiet: bool = False,
    on_report: Callable[[dict[str, Any]], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> RunFolder:
    """Run one training from its card to its figure, or go on with one that was interrupted.

    SIGTERM, SIGINT and SIGUSR1 end it after a checkpoint; a second SIGINT ends it at once.

    Args:
        run: `ReplayRun(settings)`, `RllibRun(settings)`, ...
        quiet: show nothing; the log is written all the same.
        on_report: called with every line of `result.json`.
        stop: asked after every env step; where it says yes, the run ends as by SIGINT.

    Returns:
        The run's folder. A finished run of the same settings is left as it is.

    Raises:
        UsageError: the environment, the settings or the folder can't be used; nothing is left
            behind when that shows before the first report.
    """
    # A bad environment shows here, before a folder exists or Ray runs.
    run, warning = run.checked()
    settings = run.settings
    if settings.wandb:
        import_wandb()
    folder = folder_of(run)
    assert settings.total_timesteps is not None
    display = Display(settings.total_timesteps, Console(quiet=True) if quiet else None)
    if warning:
        display.say(f"warning: {warning}")
    if has_finished(run, folder):
        display.say(
            f"this run has finished already: {folder.path}\n"
            f"its learning curve: {folder.figure}\nadd --fresh to run it again"
        )
        return folder
    restore_point(settings)  # a checkpoint that won't do is said before anything is made
    folder.open(fresh=settings.fresh)
    with accounted(folder):
        _train_in(folder, run, display, on_report, stop)
    display.say(f"results: {folder.path}\nlearning curve: {folder.figure}")
    return folder


def _train_in(
    folder: RunFolder,
    run: Kind,
    display: Display,
    on_report: Callable[[dict[str, Any]], None] | None,
    stop: Callable[[], bool] | None,
) -> None:
    import torch

    machine = run.machine
    if machine.wait_s:
        display.say(f"waiting {machine.wait_s:g} s")
        time.sleep(machine.wait_s)
    _check_gpus(machine)
    threads = machine.threads(allotted_cpus())
    torch.set_num_threads(threads)
    display.card(run.card(threads, folder))
    started = time.perf_counter()
    # What a kind silences is heard again after its run.
    with (
        warnings.catch_warnings(),
        private_ray(
            machine.processes,
            gpus=machine.gpus,
            address=machine.address,
            verbose=run.settings.verbose,
        ),
    ):
        algorithm = run.build()
        carry_out(folder, run, algorithm, display, started, {"threads": threads}, on_report, stop)


def _check_gpus(machine: Machine) -> None:
    import torch

    if machine.gpus > torch.cuda.device_count():
        raise UsageError(
            f"--num_gpus is {machine.gpus} but torch sees {torch.cuda.device_count()} here; "
            "lower it, or check CUDA_VISIBLE_DEVICES and that this torch is a CUDA build"
        )
