"""One run of an algorithm of RLlib's own, written down like ours."""

import dataclasses
import json
import time
import warnings
from collections.abc import Callable
from typing import Any

from rich.console import Console

from interreplay.environments import build_env, resolve_id
from interreplay.errors import UsageError
from interreplay.launch.display import Display
from interreplay.launch.journal import carry_out, in_folder
from interreplay.launch.private_ray import allotted_cpus, private_ray, set_log_level
from interreplay.launch.reporters import import_wandb
from interreplay.launch.stock import StockSettings
from interreplay.results import RunFolder
from interreplay.results.run_folder import plain


def train(
    settings: StockSettings,
    *,
    quiet: bool = False,
    on_report: Callable[[dict[str, Any]], None] | None = None,
) -> RunFolder:
    """Run one training from its card to its figure, as `interreplay.launch.run.train` does.

    Returns:
        The run's folder. A finished run of the same settings is left as it is.

    Raises:
        UsageError: the algorithm, the environment or the settings can't be used; nothing is left
            behind when that shows before the first report.
    """
    _, warning = resolve_id(settings.env)
    settings = resolve(settings)
    if settings.wandb:
        import_wandb()
    folder = RunFolder.locate(settings.local_dir, *settings.place)
    display = Display(settings.total_timesteps, Console(quiet=True) if quiet else None)
    return in_folder(
        folder,
        display,
        lambda: _train_in(folder, settings, display, on_report),
        finished=not settings.fresh and folder.finished_with(settings.to_dict()),
        fresh=settings.fresh,
        warning=warning,
    )


def resolve(settings: StockSettings) -> StockSettings:
    """The same with the environment's present id and all of RLlib's settings.

    Raises:
        UsageError: an algorithm, environment or setting that can't be used.
    """
    from interreplay.algorithms.stock import check_actions, stock_default, stock_values

    set_log_level(settings.verbose)  # importing RLlib has set it
    stock_default(settings.run)
    env, _ = resolve_id(settings.env)
    settings = dataclasses.replace(settings, env=env)
    probe = build_env(env)
    actions = probe.action_space
    probe.close()
    check_actions(settings.run, env, actions)
    values = plain(stock_values(_rllib_config(settings)))
    return dataclasses.replace(settings, resolved=values)


def _rllib_config(settings: StockSettings) -> Any:
    from interreplay.algorithms.stock import stock_config

    return stock_config(
        settings.run,
        settings.env,
        overrides=settings.config,
        seed=settings.seed,
        iteration=settings.iteration,
        evaluation_episodes=settings.evaluation_num_episodes,
        num_env_runners=settings.num_env_runners,
        verbose=settings.verbose,
    )


def _train_in(
    folder: RunFolder,
    settings: StockSettings,
    display: Display,
    on_report: Callable[[dict[str, Any]], None] | None,
) -> None:
    import torch

    config = _rllib_config(settings)
    workers = config.num_env_runners + config.num_learners + config.evaluation_num_env_runners
    workers += config.num_aggregator_actors_per_learner * max(1, config.num_learners)
    gpus = int(config.num_gpus_per_learner * max(1, config.num_learners))
    cpus = settings.num_cpus or allotted_cpus()
    threads = max(1, cpus - config.num_env_runners - config.num_learners)
    torch.set_num_threads(threads)
    display.card(_card(settings, config, threads, folder))
    started = time.perf_counter()
    with warnings.catch_warnings(), private_ray(workers, gpus=gpus, verbose=settings.verbose):
        # RLlib builds environments by their ids; `resolve_id` has said what there is to say.
        warnings.filterwarnings("ignore", message=".*is out of date.*")
        # TQC's loss broadcasts quantiles against quantiles, and means to.
        warnings.filterwarnings("ignore", message="Using a target size")
        algorithm = _build(config, settings)
        carry_out(
            folder, settings, algorithm, display, started, {"threads": threads}, {}, on_report
        )


def _build(config: Any, settings: StockSettings) -> Any:
    from interreplay.algorithms.stock import StockAlgorithm, one_line

    try:
        algorithm = config.build_algo()
    except Exception as error:  # RLlib finds most bad settings only here, each in its own way
        if settings.verbose or isinstance(error, UsageError):
            raise
        raise UsageError(
            f"RLlib can't build {settings.run} on {settings.env} with these settings "
            f"({type(error).__name__}: {one_line(error)}); --verbose shows all it says"
        ) from error
    return StockAlgorithm(algorithm, settings.evaluation_interval)


def _card(settings: StockSettings, config: Any, threads: int, folder: RunFolder) -> dict[str, str]:
    warm_up = settings.to_dict()["learning_starts"]
    budget = f"{settings.stop_timesteps:,} env steps"
    return {
        "algorithm": f"RLlib's own {settings.run}",
        "environment": settings.env,
        "settings": json.dumps(settings.config) if settings.config else "RLlib's defaults",
        "seed": str(settings.seed),
        "budget": budget + (f", updates after the first {warm_up:,}" if warm_up else ""),
        "processes": f"{threads} torch thread(s), {config.num_env_runners} env runner process(es)",
        "folder": str(folder.path),
    }
