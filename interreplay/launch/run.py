"""One function trains one run, in this process; whoever needs many of them calls it many times."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console

from argument_parser import FIELDS, TRANSIENT, Settings
from interreplay.environments import check_first_step, make_env, resolve_id
from interreplay.errors import UsageError
from interreplay.launch.display import Display
from interreplay.launch.journal import carry_out, in_folder
from interreplay.launch.private_ray import allotted_cpus, private_ray
from interreplay.launch.reporters import import_wandb
from interreplay.launch.translation import algorithm_config, process_settings, replay_settings
from interreplay.results import RunFolder
from replay_buffers.assembly import ReplaySettings, recipe_of, required_bytes


def folder_of(settings: Settings) -> RunFolder:
    """Where a run's results go, which need not exist yet."""
    env, _ = resolve_id(settings.env)
    return RunFolder.locate(settings.local_dir, *dataclasses.replace(settings, env=env).place)


def has_finished(settings: Settings, folder: RunFolder) -> bool:
    """Whether `folder` holds the finished run of these settings, so that nothing is left to do."""
    defaults = {name: spec.default for name, spec in FIELDS.items() if spec.default is not None}
    return not settings.fresh and folder.finished_with(
        settings.to_dict(), ignored=TRANSIENT, defaults=defaults
    )


def describe(settings: Settings, folder: RunFolder) -> str:
    """One line: what would run, and in which folder."""
    state = "finished already" if has_finished(settings, folder) else "to run"
    steps = f"{settings.total_timesteps:,} env steps"
    return f"{settings.name}: {steps}, {state}, {folder.path}"


def train(
    settings: Settings,
    *,
    quiet: bool = False,
    on_report: Callable[[dict[str, Any]], None] | None = None,
) -> RunFolder:
    """Run one training from its card to its figure.

    Args:
        settings: of `argument_parser`.
        quiet: show nothing; the log is written all the same.
        on_report: called with every line of `result.json`.

    Returns:
        The run's folder. A finished run of the same settings is left as it is.

    Raises:
        UsageError: the environment, the settings or the folder can't be used; nothing is left
            behind when that shows before the first report.
    """
    env, warning = resolve_id(settings.env)
    settings = dataclasses.replace(settings, env=env)
    # A bad environment shows here, before a folder exists or Ray runs.
    probe = make_env(env, horizon=settings.horizon)
    dimensions = (probe.observation_space.shape[0], probe.action_space.shape[0])
    check_first_step(probe, env)
    probe.close()
    if settings.wandb:
        import_wandb()
    folder = folder_of(settings)
    assert settings.total_timesteps is not None
    display = Display(settings.total_timesteps, Console(quiet=True) if quiet else None)
    return in_folder(
        folder,
        display,
        lambda: _train_in(folder, settings, dimensions, display, on_report),
        finished=has_finished(settings, folder),
        fresh=settings.fresh,
        warning=warning,
    )


def _train_in(
    folder: RunFolder,
    settings: Settings,
    dimensions: tuple[int, int],
    display: Display,
    on_report: Callable[[dict[str, Any]], None] | None,
) -> None:
    import torch

    if settings.sleep_time:
        display.say(f"waiting {settings.sleep_time:g} s")
        time.sleep(settings.sleep_time)
    if settings.num_gpus > torch.cuda.device_count():
        raise UsageError(
            f"--num_gpus is {settings.num_gpus} but torch sees {torch.cuda.device_count()} here; "
            "lower it, or check CUDA_VISIBLE_DEVICES and that this torch is a CUDA build"
        )

    cpus = settings.num_cpus or allotted_cpus()
    threads = max(1, cpus - settings.num_workers - settings.num_learners)
    torch.set_num_threads(threads)
    assert settings.buffer is not None and settings.buffer_size is not None
    recipe = recipe_of(settings.buffer, settings.prioritized_replay)
    bytes_needed = required_bytes(
        recipe,
        *dimensions,
        settings.buffer_size,
        settings.kneighbors or 0,
        ReplaySettings(**replay_settings(settings)),
    )
    display.card(_card(settings, threads, bytes_needed, folder))
    started = time.perf_counter()
    with private_ray(
        settings.num_workers + settings.num_learners,
        gpus=settings.num_gpus,
        address=settings.address,
        verbose=settings.verbose,
    ):
        algorithm = algorithm_config(settings).build_algo()
        replay = {f"replay/{name}": value for name, value in algorithm.buffer.stats().items()}
        facts = {"threads": threads}
        carry_out(folder, settings, algorithm, display, started, facts, replay, on_report)


def _card(settings: Settings, threads: int, bytes_needed: int, folder: RunFolder) -> dict[str, str]:
    assert settings.total_timesteps is not None and settings.learning_starts is not None
    budget = (
        f"{settings.total_timesteps:,} env steps, the first {settings.learning_starts:,} random"
    )
    if settings.total_timesteps <= settings.learning_starts:
        budget += " (so there will be no update; lower --learning_starts to learn)"
    return {
        "trainer": settings.trainer,
        "environment": settings.env,
        "recipe": settings.recipe_label,
        **_process_card(settings),
        "replay ratio": f"{settings.round_robin_weights:g} updates per env step",
        "seed": str(settings.seed),
        "budget": budget,
        "replay buffer": f"{settings.buffer_size:,} rows, {bytes_needed / 1e9:.3f} GB",
        "processes": _processes(settings, threads),
        "folder": str(folder.path),
    }


def _processes(settings: Settings, threads: int) -> str:
    parts = [f"{threads} torch thread(s)", f"{settings.num_workers} env runner process(es)"]
    if settings.num_learners:
        parts.append(f"{settings.num_learners} learner process(es)")
    if settings.num_gpus:
        parts.append(f"{settings.num_gpus} GPU(s)")
    return ", ".join(parts)


def _process_card(settings: Settings) -> dict[str, str]:
    """The Gaussian process in a line: what it is, and how often it is fitted."""
    if not process_settings(settings):
        return {}
    by = "gpytorch" if settings.gpytorch else "scikit-learn"
    if settings.est_lengthscales:
        by = "estimated"
    if settings.global_hyperparams or settings.single_model:
        when = f"every {settings.retrain_interval:,} env steps"
    elif settings.est_lengthscales or settings.use_queue:
        when = "for each neighbourhood"
    else:
        when = "for each neighbourhood in each batch (slow; --global_hyperparams is fast)"
    what = f"{settings.kernel}, {settings.kneighbors} neighbours"
    return {"Gaussian process": f"{what}; hyperparameters by {by}, {when}"}
