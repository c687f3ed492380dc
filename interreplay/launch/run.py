"""One function trains one run, in this process; whoever needs many of them calls it many times."""

import contextlib
import dataclasses
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from argument_parser import FIELDS, TRANSIENT, Settings
from interreplay.environments import check_first_observation, make_env, resolve_id
from interreplay.errors import UsageError
from interreplay.launch.display import Display
from interreplay.launch.private_ray import allotted_cpus, private_ray
from interreplay.launch.reporters import Asked, Reporters, import_wandb
from interreplay.launch.resolution import process_settings
from interreplay.results import RunFolder, learning_curve
from replay_buffers.buffer import ReplaySettings, recipe_of, required_bytes
from replay_buffers.errors import ReplayError

_CHECKPOINTS_KEPT = 2
# Settings that a trainer's config has under the same name.
_TRAINER_SETTINGS = (
    "gamma",
    "tau",
    "hidden_sizes",
    "actor_lr",
    "actor_l2",
    "critic_lr",
    "alpha_lr",
    "initial_alpha",
    "target_entropy",
    "huber_loss",
    "policy_delay",
    "target_noise",
    "target_noise_clip",
)


def algorithm_config(settings: Settings, env: str) -> Any:
    """The RLlib config of a run on the environment `env` (an id that Gymnasium knows)."""
    from interreplay.algorithms import config_class

    config = config_class(settings.trainer)()
    config.environment(env, env_config={"horizon": settings.horizon} if settings.horizon else {})
    config.framework(settings.framework)
    config.debugging(seed=settings.seed, log_level="INFO" if settings.verbose else "ERROR")
    config.env_runners(
        num_env_runners=settings.num_workers,
        num_envs_per_env_runner=settings.num_envs_per_worker,
        rollout_fragment_length=settings.rollout_fragment_length,
    )
    config.reporting(metrics_num_episodes_for_smoothing=settings.metrics_smoothing_episodes)
    config.evaluate_episodes(
        interval=settings.evaluation_interval, episodes=settings.evaluation_num_episodes
    )
    assert settings.train_batch_size is not None
    learners = settings.num_learners
    config.learners(num_learners=learners, num_gpus_per_learner=1 if settings.num_gpus else 0)
    config.train_batch_size_per_learner = settings.train_batch_size // max(1, learners)
    for name in _TRAINER_SETTINGS:
        value = getattr(settings, name)
        if value is not None:
            setattr(config, name, value)
    if settings.exploration_noise is not None:
        config.exploration = ("gaussian", settings.exploration_noise)
    if settings.ou_theta is not None:
        config.exploration = ("ou", settings.ou_theta, settings.ou_sigma)
    config.replay(
        recipe=settings.buffer,
        prioritized=settings.prioritized_replay,
        buffer_size=settings.buffer_size,
        ratio=settings.round_robin_weights,
        learning_starts=settings.learning_starts,
        timesteps_per_iteration=settings.timesteps_per_iteration,
        total_timesteps=settings.total_timesteps,
        num_sgd_iter=settings.num_sgd_iter,
        whole_episodes=settings.whole_episodes,
        target_by_steps_sampled=settings.target_by_steps_sampled,
        **replay_settings(settings),
    )
    return config


def replay_settings(settings: Settings) -> dict[str, Any]:
    """The recipe's numbers under the names that `replay_buffers` has for them."""
    values = {
        "kneighbors": settings.kneighbors,
        "n_step": settings.n_step if settings.n_step > 1 else None,
        "mixing_law": "uniform" if settings.smote_interpolation else None,
        "mixup_alpha": settings.mixup_alpha,
        "prob_interpolation": settings.prob_interpolation,
        "interp_decay_rate": settings.interp_decay_rate,
        "furthest_neighbor": settings.furthest_neighbor,
        "use_delta": settings.use_delta or None,
        **process_settings(settings),
        "noise_std": settings.noise_std,
        "noise_multiple": settings.noise_multiple,
        "s4rl_view": settings.s4rl_view,
        "s4rl_num_views": settings.s4rl_num_views,
        "ct_fixed": settings.ct_fixed or None,
        "interp_prio_update": settings.interp_prio_update or None,
        "use_importance_sampling": settings.use_importance_sampling or None,
        "per_alpha": settings.prioritized_replay_alpha,
        "per_beta": settings.prioritized_replay_beta,
        "per_final_beta": settings.final_prioritized_replay_beta,
    }
    return {name: value for name, value in values.items() if value is not None}


def folder_of(settings: Settings) -> RunFolder:
    """Where a run's results go, which need not exist yet."""
    env, _ = resolve_id(settings.env)
    return RunFolder.locate(
        settings.local_dir,
        settings.agent_name,
        env,
        settings.trainer,
        settings.recipe_label,
        settings.seed,
    )


def has_finished(settings: Settings, folder: RunFolder) -> bool:
    """Whether `folder` holds the finished run of these settings, so that nothing is left to do."""
    defaults = {name: spec.default for name, spec in FIELDS.items() if spec.default is not None}
    return not settings.fresh and folder.finished_with(
        settings.to_dict(), ignored=TRANSIENT, defaults=defaults
    )


def describe(settings: Settings) -> str:
    """One line: what would run, and in which folder."""
    make_env(settings.env, horizon=settings.horizon).close()
    folder = folder_of(settings)
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
    check_first_observation(probe, env)
    probe.close()
    if settings.wandb:
        import_wandb()
    folder = folder_of(settings)
    assert settings.total_timesteps is not None
    display = Display(settings.total_timesteps, Console(quiet=True) if quiet else None)
    if warning:
        display.say(f"warning: {warning}")
    if has_finished(settings, folder):
        display.say(
            f"this run has finished already: {folder.path}\n"
            f"its learning curve: {folder.figure}\nadd --fresh to run it again"
        )
        return folder
    folder.open(fresh=settings.fresh)
    if settings.sleep_time:
        display.say(f"waiting {settings.sleep_time:g} s")
        time.sleep(settings.sleep_time)
    with accounted(folder):
        _train_in(folder, settings, env, dimensions, display, on_report)
    display.say(f"results: {folder.path}\nlearning curve: {folder.figure}")
    return folder


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
            folder.end("interrupted" if interrupted else "failed", error=str(usage or error))
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


def _train_in(
    folder: RunFolder,
    settings: Settings,
    env: str,
    dimensions: tuple[int, int],
    display: Display,
    on_report: Callable[[dict[str, Any]], None] | None,
) -> None:
    import torch

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
    display.card(_card(settings, env, threads, bytes_needed, folder))
    started = time.perf_counter()
    with private_ray(
        settings.num_workers + settings.num_learners,
        gpus=settings.num_gpus,
        address=settings.address,
        verbose=settings.verbose,
    ):
        algorithm = algorithm_config(settings, env).build_algo()
        replay = {f"replay/{name}": value for name, value in algorithm.buffer.stats().items()}
        facts = {"threads": threads}
        carry_out(folder, settings, algorithm, display, started, facts, replay, on_report)


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


def _card(
    settings: Settings, env: str, threads: int, bytes_needed: int, folder: RunFolder
) -> dict[str, str]:
    assert settings.total_timesteps is not None and settings.learning_starts is not None
    budget = (
        f"{settings.total_timesteps:,} env steps, the first {settings.learning_starts:,} random"
    )
    if settings.total_timesteps <= settings.learning_starts:
        budget += " (so there will be no update; lower --learning_starts to learn)"
    return {
        "trainer": settings.trainer,
        "environment": env,
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
