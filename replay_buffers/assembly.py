"""From a recipe's words and numbers to the parts of a buffer, and to how much memory they take."""

from dataclasses import dataclass, replace

import numpy as np

from replay_buffers.augmentations import (
    AdaptiveMixture,
    Augmentation,
    GaussianNoise,
    GaussianProcess,
    Identity,
    Mixture,
    StateViews,
)
from replay_buffers.catalog import CATALOG, Recipe
from replay_buffers.errors import ReplayError
from replay_buffers.gaussian_process.neighborhoods import Reader
from replay_buffers.gaussian_process.settings import GaussianProcessSettings
from replay_buffers.gaussian_process.synthesis import synthetic_bytes
from replay_buffers.neighbor_table import NeighborTable, table_bytes
from replay_buffers.partners import FollowingPartner, NearestPartner, Partner, RandomPartner
from replay_buffers.samplers import (
    PrioritizedSampler,
    Sampler,
    UniformSampler,
    priority_bytes,
)
from replay_buffers.storage import Schema, Storage, storage_bytes


@dataclass(frozen=True)
class ReplaySettings(GaussianProcessSettings):
    """The numbers that recipes need; each recipe reads those that concern it.

    Those of the `bier` recipe are inherited.

    Attributes:
        kneighbors: how many nearest neighbours a partner is drawn from.
        mixing_law, mixup_alpha: lam ~ Beta(alpha, alpha) or U(0, 1).
        prob_interpolation: the chance of a row being mixed at all.
        interp_decay_rate: by how much that chance falls with every row added.
        use_delta: mixtures interpolate, and the process predicts, new_obs - obs in place of
            new_obs.
        furthest_neighbor: the highest rank of a neighbour that is drawn, -1 for all.
        noise_std: relative standard deviation of the Gaussian noise.
        noise_multiple: additive noise instead, in units of each dimension's standard deviation.
        s4rl_view, s4rl_num_views: see `StateViews`.
        ct_fixed: Continuous Transition with lam ~ Beta(mixup_alpha, mixup_alpha), nothing learned.
        interp_prio_update: a mixture's TD error is shared between its parents' priorities.
        n_step, gamma: rewards are summed over n steps, discounted by gamma.
        use_importance_sampling: prioritized weights inside the recipes that mix.
        per_alpha, per_beta, per_final_beta, per_anneal_rows: see `PrioritizedSampler`.
    """

    kneighbors: int = 10
    mixing_law: str = "beta"
    mixup_alpha: float = 0.75
    prob_interpolation: float = 1.0
    interp_decay_rate: float = 0.0
    use_delta: bool = False
    furthest_neighbor: int = -1
    noise_std: float = 0.1
    noise_multiple: float | None = None
    s4rl_view: str = "mixup"
    s4rl_num_views: int = 1
    ct_fixed: bool = False
    interp_prio_update: bool = False
    n_step: int = 1
    gamma: float = 0.99
    use_importance_sampling: bool = False
    per_alpha: float = 0.6
    per_beta: float = 0.4
    per_final_beta: float = 1.0
    per_anneal_rows: int = 0


def make_sampler(name: str, storage: Storage, settings: ReplaySettings) -> Sampler:
    if name == "uniform":
        return UniformSampler(storage)
    if name == "prioritized":
        return PrioritizedSampler(
            storage,
            alpha=settings.per_alpha,
            beta=settings.per_beta,
            final_beta=settings.per_final_beta,
            anneal_rows=settings.per_anneal_rows,
        )
    raise ReplayError(f"unknown sampler {name!r}")


def make_partner(name: str | None, storage: Storage, settings: ReplaySettings) -> Partner | None:
    if name is None:
        return None
    if name == "random":
        return RandomPartner(storage)
    if name == "following":
        return FollowingPartner(storage)
    if name == "nearest":
        table = NeighborTable(storage, settings.kneighbors)
        return NearestPartner(table, settings.furthest_neighbor, settings.multi_sample)
    raise ReplayError(f"unknown partner {name!r}")


def _mixture(settings: ReplaySettings) -> Mixture:
    return Mixture(
        law=settings.mixing_law,  # type: ignore[arg-type]  # checked by Mixture
        alpha=settings.mixup_alpha,
        probability=settings.prob_interpolation,
        decay=settings.interp_decay_rate,
        use_delta=settings.use_delta,
    )


def _gaussian_process(
    storage: Storage, settings: ReplaySettings, partner: Partner | None, read: Reader
) -> GaussianProcess:
    if not isinstance(partner, NearestPartner):
        raise ReplayError("a Gaussian process needs neighbours; give its recipe nearest partners")
    if settings.use_queue and (settings.interp_prio_update or settings.use_importance_sampling):
        raise ReplayError(
            "--use_queue's rows were mixed before anyone knew who would sample them; drop "
            "--interp_prio_update and --use_importance_sampling"
        )
    return GaussianProcess.of(
        storage, partner, read, settings, mixture=_mixture(settings), use_delta=settings.use_delta
    )


def make_augmentation(
    name: str,
    storage: Storage,
    settings: ReplaySettings,
    partner: Partner | None,
    read: Reader,
    rng: np.random.Generator,
) -> Augmentation:
    if name == "identity":
        return Identity()
    if name == "gaussian_noise":
        if settings.noise_multiple is not None:
            return GaussianNoise(settings.noise_multiple, storage)
        return GaussianNoise(settings.noise_std)
    if name == "state_views":
        return StateViews(settings.s4rl_view, settings.s4rl_num_views)
    if name == "mixture":
        return _mixture(settings)
    if name == "gaussian_process":
        return _gaussian_process(storage, settings, partner, read)
    if name == "adaptive_mixture":
        fixed = settings.mixup_alpha if settings.ct_fixed else None
        return AdaptiveMixture(
            storage.schema, int(rng.integers(2**31)), fixed=fixed, use_delta=settings.use_delta
        )
    raise ReplayError(f"unknown augmentation {name!r}")


def required_bytes(
    recipe: Recipe,
    obs_dim: int,
    action_dim: int,
    capacity: int,
    kneighbors: int = 10,
    settings: GaussianProcessSettings | None = None,
) -> int:
    """Bytes of a full buffer: rows, priorities, nearest partners, synthetic rows in advance."""
    total = storage_bytes(Schema(obs_dim, action_dim), capacity)
    if recipe.sampler == "prioritized":
        total += priority_bytes(capacity)
    if recipe.partner == "nearest":
        total += table_bytes(capacity, kneighbors)
    if recipe.augmentation == "gaussian_process" and settings is not None and settings.use_queue:
        total += synthetic_bytes(settings, obs_dim, action_dim, capacity)
    return total


def recipe_of(name: str, prioritized: bool = False) -> Recipe:
    """The catalog's recipe `name`, with prioritized sampling under it if asked.

    Raises:
        ReplayError: a name that the catalog does not have.
    """
    if name not in CATALOG:
        raise ReplayError(f"unknown recipe {name!r}; choose one of {', '.join(CATALOG)}")
    recipe = CATALOG[name]
    return replace(recipe, sampler="prioritized") if prioritized else recipe
