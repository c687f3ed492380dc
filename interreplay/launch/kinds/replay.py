"""Runs of this project's trainers with its replay recipes: `custom_training.py`."""

import dataclasses
import functools
from dataclasses import dataclass
from typing import Any

from argument_parser import DEFAULTS, TRANSIENT, Settings
from interreplay.environments import check_first_step, make_env, resolve_id
from interreplay.launch.running.kind import Machine, SameResults
from interreplay.launch.settings.translation import process_settings, replay_settings
from interreplay.results import RunFolder
from replay_buffers.assembly import ReplaySettings, recipe_of, required_bytes

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
_SAME = SameResults(frozenset(TRANSIENT), DEFAULTS)


@dataclass(frozen=True)
class ReplayRun:
    """SAC, TD3 or DDPG with a replay recipe.

    Attributes:
        settings: of `argument_parser`, resolved.
        dimensions: of observation and action; known once the run is `checked`.
    """

    settings: Settings
    dimensions: tuple[int, int] | None = None

    resumes = True

    @property
    def machine(self) -> Machine:
        s = self.settings
        return Machine(
            cpus=s.num_cpus,
            env_runners=s.num_workers,
            learners=s.num_learners,
            gpus=s.num_gpus,
            address=s.address,
            wait_s=s.sleep_time,
        )

    @property
    def same_results(self) -> SameResults:
        return _SAME

    def checked(self) -> tuple["ReplayRun", str | None]:
        """With the environment's id of today and its dimensions."""
        env, warning = resolve_id(self.settings.env)
        settings = dataclasses.replace(self.settings, env=env)
        return ReplayRun(settings, _dimensions(env, settings.horizon)), warning

    def card(self, threads: int, folder: RunFolder) -> dict[str, str]:
        settings = self.settings
        return {
            "trainer": settings.trainer,
            "environment": settings.env,
            "recipe": settings.recipe_label,
            **_process_card(settings),
            "replay ratio": f"{settings.round_robin_weights:g} updates per env step",
            "seed": str(settings.seed),
            "budget": _budget(settings),
            "replay buffer": f"{settings.buffer_size:,} rows, {self._bytes() / 1e9:.3f} GB",
            "processes": _processes(settings, threads),
            "folder": str(folder.path),
        }

    def _bytes(self) -> int:
        """Of the replay buffer; refuses one that does not fit."""
        settings = self.settings
        assert self.dimensions is not None
        assert settings.buffer is not None and settings.buffer_size is not None
        return required_bytes(
            recipe_of(settings.buffer, settings.prioritized_replay),
            *self.dimensions,
            settings.buffer_size,
            settings.kneighbors or 0,
            ReplaySettings(**replay_settings(settings)),
        )

    def build(self) -> Any:
        return algorithm_config(self.settings).build_algo()

    def first_figures(self, algorithm: Any) -> dict[str, Any]:
        return {f"replay/{name}": value for name, value in algorithm.buffer.stats().items()}


@functools.lru_cache(maxsize=1)  # runs of a sweep come environment by environment
def _dimensions(env: str, horizon: int | None) -> tuple[int, int]:
    """Of observation and action, of an environment that has shown that it can be reset."""
    probe = make_env(env, horizon=horizon)
    dimensions = (probe.observation_space.shape[0], probe.action_space.shape[0])
    check_first_step(probe, env)
    probe.close()
    return dimensions


def algorithm_config(settings: Settings) -> Any:
    """The RLlib config of a run; its environment's id is of today."""
    from interreplay.algorithms import config_class

    config = config_class(settings.trainer)()
    env_config = {"horizon": settings.horizon} if settings.horizon else {}
    config.environment(settings.env, env_config=env_config)
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
        checkpoint_buffer=not settings.no_checkpoint_buffer,
        **replay_settings(settings),
    )
    return config


def _budget(settings: Settings) -> str:
    assert settings.total_timesteps is not None and settings.learning_starts is not None
    budget = (
        f"{settings.total_timesteps:,} env steps, the first {settings.learning_starts:,} random"
    )
    if settings.total_timesteps <= settings.learning_starts:
        budget += " (so there will be no update; lower --learning_starts to learn)"
    return budget


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
