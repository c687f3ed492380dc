"""From a run's settings to what RLlib and the replay buffer call them."""

import dataclasses
from typing import Any

from argument_parser import Settings
from replay_buffers.catalog import CATALOG
from replay_buffers.gaussian_process.settings import GaussianProcessSettings


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
