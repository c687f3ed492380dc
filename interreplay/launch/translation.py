"""From a run's settings to what RLlib and the replay buffer call them."""

import dataclasses
from typing import Any

from argument_parser import Settings
from replay_buffers.catalog import CATALOG
from replay_buffers.gaussian_process.settings import GaussianProcessSettings

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


def process_settings(settings: Settings) -> dict[str, Any]:
    """What concerns the Gaussian process, under the names that `replay_buffers` has for it."""
    if CATALOG[str(settings.buffer)].augmentation != "gaussian_process":
        return {}
    names = [field.name for field in dataclasses.fields(GaussianProcessSettings)]
    values = {name: getattr(settings, name, None) for name in names}
    values["fit_batch"] = settings.train_batch_size
    return {name: value for name, value in values.items() if value not in (None, False)}
