"""The replay buffer: a storage, a sampler, a partner and an augmentation, wired by a recipe."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from replay_buffers.augmentations import Augmentation, GaussianNoise, Identity, Mixture, Sample
from replay_buffers.catalog import CATALOG, Recipe
from replay_buffers.errors import ReplayError
from replay_buffers.neighbors import NeighborTable, table_bytes
from replay_buffers.partners import FollowingPartner, NearestPartner, Partner, RandomPartner
from replay_buffers.samplers import PrioritizedSampler, Sampler, UniformSampler
from replay_buffers.storage import Doubles, Floats, Ints, Schema, Storage, storage_bytes


@dataclass(frozen=True)
class ReplaySettings:
    """The numbers that recipes need; each recipe reads those that concern it.

    Attributes:
        kneighbors: how many nearest neighbours a partner is drawn from.
        mixing_law, mixup_alpha: lam ~ Beta(alpha, alpha) or U(0, 1).
        prob_interpolation: the chance of a row being mixed at all.
        noise_std: relative standard deviation of the Gaussian noise.
        use_importance_sampling: prioritized weights inside the recipes that mix.
        per_alpha, per_beta, per_final_beta, per_anneal_rows: see `PrioritizedSampler`.
    """

    kneighbors: int = 10
    mixing_law: str = "beta"
    mixup_alpha: float = 0.75
    prob_interpolation: float = 1.0
    noise_std: float = 0.1
    use_importance_sampling: bool = False
    per_alpha: float = 0.6
    per_beta: float = 0.4
    per_final_beta: float = 1.0
    per_anneal_rows: int = 0


def _sampler(name: str, storage: Storage, settings: ReplaySettings) -> Sampler:
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


def _partner(name: str | None, storage: Storage, settings: ReplaySettings) -> Partner | None:
    if name is None:
        return None
    if name == "random":
        return RandomPartner(storage)
    if name == "following":
        return FollowingPartner(storage)
    if name == "nearest":
        return NearestPartner(NeighborTable(storage, settings.kneighbors))
    raise ReplayError(f"unknown partner {name!r}")


def _augmentation(name: str, settings: ReplaySettings) -> Augmentation:
    if name == "identity":
        return Identity()
    if name == "gaussian_noise":
        return GaussianNoise(settings.noise_std)
    if name == "mixture":
        return Mixture(
            law=settings.mixing_law,  # type: ignore[arg-type]  # checked by Mixture
            alpha=settings.mixup_alpha,
            probability=settings.prob_interpolation,
        )
    raise ReplayError(f"unknown augmentation {name!r}")


def required_bytes(
    name: str, obs_dim: int, action_dim: int, capacity: int, kneighbors: int = 10
) -> int:
    """Bytes of a full buffer of the recipe `name`: rows and, for nearest partners, the table."""
    rows = storage_bytes(Schema(obs_dim, action_dim), capacity)
    nearest = CATALOG[name].partner == "nearest"
    return rows + (table_bytes(capacity, kneighbors) if nearest else 0)


class ReplayBuffer:
    """Lived once, replayed many times: `add` rows, `sample` batches, `update` priorities.

    The buffer owns one `np.random.Generator`; every draw of every part comes from it, so a seed
    and a sequence of calls determine every batch.

    Example:
        >>> buffer = ReplayBuffer.from_catalog("nmer", obs_dim=3, action_dim=1, capacity=99)
        >>> rows = buffer.schema.pack(np.zeros((2, 3)), np.zeros((2, 1)), [0, 1],
        ...                           np.ones((2, 3)), [0, 0], [0, 0])
        >>> buffer.add(rows, episode=np.array([0, 0]), step=np.array([0, 1]))
        >>> buffer.sample(256)["obs"].shape
        (256, 3)
    """

    def __init__(
        self,
        recipe: Recipe,
        schema: Schema,
        capacity: int,
        seed: int | None,
        settings: ReplaySettings | None = None,
    ) -> None:
        settings = settings or ReplaySettings()
        self.recipe = recipe
        self.schema = schema
        self.storage = Storage(schema, capacity)
        self.sampler = _sampler(recipe.sampler, self.storage, settings)
        self.partner = _partner(recipe.partner, self.storage, settings)
        self.augmentation = _augmentation(recipe.augmentation, settings)
        self._rng = np.random.default_rng(seed)
        self._k = settings.kneighbors
        self._weighted = recipe.sampler == "prioritized" and (
            recipe.partner is None or settings.use_importance_sampling
        )
        self._sampled = 0

    @classmethod
    def from_catalog(
        cls,
        name: str,
        *,
        obs_dim: int,
        action_dim: int,
        capacity: int = 1_000_000,
        seed: int | None = None,
        prioritized: bool = False,
        **settings: Any,
    ) -> "ReplayBuffer":
        """Build the recipe `name`; `prioritized` puts proportional sampling under any of them.

        Args:
            obs_dim, action_dim: sizes of the flat observation and action.
            capacity: rows.
            seed: of the buffer's generator.
            settings: fields of `ReplaySettings`.

        Raises:
            ReplayError: a name that the catalog does not have, or a setting out of range.
        """
        if name not in CATALOG:
            raise ReplayError(f"unknown recipe {name!r}; choose one of {', '.join(CATALOG)}")
        recipe = CATALOG[name]
        if prioritized:
            recipe = Recipe(
                recipe.name, "prioritized", recipe.partner, recipe.augmentation, recipe.source
            )
        return cls(recipe, Schema(obs_dim, action_dim), capacity, seed, ReplaySettings(**settings))

    def __len__(self) -> int:
        return len(self.storage)

    @property
    def nbytes(self) -> int:
        """Bytes of the buffer when full."""
        obs, action = self.schema.obs_dim, self.schema.action_dim
        return required_bytes(self.recipe.name, obs, action, self.storage.capacity, self._k)

    @property
    def prioritized(self) -> bool:
        """Whether a batch depends on the TD errors of the one before."""
        return self.recipe.sampler == "prioritized"

    def add(self, rows: Floats, episode: Ints, step: Ints) -> None:
        """Store transitions; see `Storage.add` for shapes and errors."""
        self.sampler.added(self.storage.add(rows, episode, step))

    def sample(self, count: int) -> dict[str, Any]:
        """Draw `count` transitions.

        Returns:
            `obs`, `actions`, `rewards`, `new_obs`, `terminateds`, `truncateds`, `weights` as
            float32 arrays with `count` rows (the first six are views of one packed matrix), and
            `numbers`, the int64 write numbers that `update` wants back.

        Raises:
            ReplayError: the buffer is empty.
        """
        if len(self.storage) == 0:
            raise ReplayError("the replay buffer is empty; add transitions before sampling")
        positions = self.sampler.sample(count, self._rng)
        sample = Sample(
            schema=self.schema,
            rows=self.storage.rows.take(positions, axis=0),
            weights=self._weights(positions),
        )
        if self.partner is not None:
            partners = self.partner(positions, self._rng)
            sample.partnered = partners >= 0
            sample.partners = self.storage.rows.take(np.maximum(partners, 0), axis=0)
            if self._weighted:
                sample.partner_weights = self._weights(np.maximum(partners, 0))
        self.augmentation(sample, self._rng)
        self._sampled += count
        batch: dict[str, Any] = dict(self.schema.unpack(sample.rows))
        batch["weights"] = sample.weights
        batch["numbers"] = self.storage.numbers(positions)
        return batch

    def _weights(self, positions: Ints) -> Floats:
        if self._weighted:
            return self.sampler.weights(positions)
        return np.ones(len(positions), np.float32)

    def update(self, numbers: Ints, td_errors: Doubles | Floats) -> None:
        """Hand back the |TD error| of sampled rows; rows overwritten since are skipped."""
        self.sampler.update(numbers, np.asarray(td_errors, np.float64))

    def stats(self) -> dict[str, float]:
        """Size, bytes, rows added and sampled, and each part's own figures."""
        added = self.storage.written
        return {
            "size": len(self.storage),
            "bytes": self.nbytes,
            "added": added,
            "sampled": self._sampled,
            "sampled_per_added": self._sampled / max(1, added),
            **self.sampler.stats(),
            **(self.partner.stats() if self.partner else {}),
            **self.augmentation.stats(),
        }

    def get_state(self) -> dict[str, Any]:
        """Rows, priorities, augmentation, generator and counters."""
        return {
            "recipe": (self.recipe.name, self.recipe.sampler),
            "storage": self.storage.get_state(),
            "sampler": self.sampler.get_state(),
            "partner": self.partner.get_state() if self.partner else {},
            "augmentation": self.augmentation.get_state(),
            "rng": self._rng.bit_generator.state,
            "sampled": self._sampled,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue exactly where `get_state` left off.

        Raises:
            ReplayError: the state is another recipe's, or another shape's.
        """
        mine = (self.recipe.name, self.recipe.sampler)
        if tuple(state["recipe"]) != mine:
            raise ReplayError(
                f"the saved replay buffer is {'/'.join(state['recipe'])} but this run's is "
                f"{'/'.join(mine)}; restore with the same --buffer and --prioritized_replay"
            )
        self.storage.set_state(state["storage"])
        self.sampler.set_state(state["sampler"])
        if self.partner:
            self.partner.set_state(state["partner"])
        self.augmentation.set_state(state["augmentation"])
        self._rng.bit_generator.state = state["rng"]
        self._sampled = int(state["sampled"])
