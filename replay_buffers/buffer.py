"""The replay buffer: a storage, a sampler, a partner and an augmentation, wired by a recipe."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from replay_buffers import memory
from replay_buffers.assembly import (
    ReplaySettings,
    make_augmentation,
    make_partner,
    make_sampler,
    recipe_of,
    required_bytes,
)
from replay_buffers.augmentations import (
    Context,
    Sample,
)
from replay_buffers.catalog import Recipe
from replay_buffers.errors import ReplayError
from replay_buffers.partners import NearestPartner
from replay_buffers.storage import Doubles, Floats, Ints, Schema, Storage


@dataclass
class Receipt:
    """Which rows a batch was made of.

    Attributes:
        numbers: `[n]` int64, write numbers of the sampled rows.
        partners, lam: `[n]`, of their partners and the sampled rows' shares, where priorities are
            shared between parents.
    """

    numbers: Ints
    partners: Ints | None = None
    lam: Floats | None = None


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
        self._settings = settings
        memory.require(
            self._bytes(capacity), f"a replay buffer of {capacity:,} rows", "lower --buffer_size"
        )
        self.storage = Storage(schema, capacity)
        self.sampler = make_sampler(recipe.sampler, self.storage, settings)
        self.partner = make_partner(recipe.partner, self.storage, settings)
        self._n_step, self._gamma = settings.n_step, settings.gamma
        if self._n_step < 1:
            raise ReplayError(f"--n_step is {self._n_step}; it must be 1 or more")
        self._rng = np.random.default_rng(seed)
        self.augmentation = make_augmentation(
            recipe.augmentation, self.storage, settings, self.partner, self._rows, self._rng
        )
        self._share_priorities = settings.interp_prio_update
        nearest = self.partner if isinstance(self.partner, NearestPartner) else None
        self._nearest = nearest
        # How often a sampled row comes, to be mixed with one neighbour after another.
        self._repeats = nearest.furthest if nearest and settings.multi_sample else 1
        self._weighted = recipe.sampler == "prioritized" and (
            not recipe.mixes or settings.use_importance_sampling
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
        recipe = recipe_of(name, prioritized)
        return cls(recipe, Schema(obs_dim, action_dim), capacity, seed, ReplaySettings(**settings))

    def __len__(self) -> int:
        return len(self.storage)

    @property
    def nbytes(self) -> int:
        """Bytes of the buffer when full."""
        return self._bytes(self.storage.capacity)

    def _bytes(self, capacity: int) -> int:
        settings, dims = self._settings, (self.schema.obs_dim, self.schema.action_dim)
        return required_bytes(self.recipe, *dims, capacity, settings.kneighbors, settings)

    @property
    def prioritized(self) -> bool:
        """Whether a batch depends on the TD errors of the one before."""
        return self.recipe.sampler == "prioritized"

    @property
    def views(self) -> int:
        """Rows in a batch for each row sampled: S4RL's views, 1 for every other recipe."""
        return self.augmentation.views

    @property
    def one_at_a_time(self) -> bool:
        """Whether a batch depends on what the learner did with the one before."""
        return self.prioritized or self.augmentation.sequential

    def attach(self, context: Context) -> None:
        """Lend the augmentation what it needs of the learner."""
        self.augmentation.attach(context)

    def add(self, rows: Floats, episode: Ints, step: Ints) -> None:
        """Store transitions; see `Storage.add` for shapes and errors."""
        self.sampler.added(self.storage.add(rows, episode, step))

    def sample(self, count: int) -> dict[str, Any]:
        """Draw `count` transitions.

        Returns:
            `obs`, `actions`, `rewards`, `new_obs`, `terminateds`, `truncateds`, `weights` as
            float32 arrays with `views * count` rows, contiguous by view (the first six are slices
            of one packed matrix). With n-step returns also `n_step`, float32: how many steps each
            reward sums over. And `receipt`: give it back to `update` with the TD errors.

        Raises:
            ReplayError: the buffer is empty.
        """
        if len(self.storage) == 0:
            raise ReplayError("the replay buffer is empty; add transitions before sampling")
        positions = self.sampler.sample(-(-count // self._repeats), self._rng)
        if self._repeats > 1:
            positions = positions.repeat(self._repeats)[:count]
        rows, steps = self._rows(positions)
        sample = Sample(
            self.schema, rows, self._weights(positions), added=self.storage.written, steps=steps
        )
        receipt = Receipt(self.storage.numbers(positions))
        if self.partner is not None:
            if self._nearest is not None and self._nearest is self.partner:
                partners, sample.neighbors = self._nearest.draw(positions, self._rng)
                sample.positions = positions
            else:
                partners = self.partner(positions, self._rng)
            sample.partnered = partners >= 0
            sample.partners, sample.partner_steps = self._rows(np.maximum(partners, 0))
            if self._weighted:
                sample.partner_weights = self._weights(np.maximum(partners, 0))
            if self._share_priorities:
                receipt.partners = self.storage.numbers(np.maximum(partners, 0))
        self.augmentation(sample, self._rng)
        receipt.lam = sample.lam
        self._sampled += count
        batch: dict[str, Any] = dict(self.schema.unpack(sample.rows))
        batch["weights"] = sample.weights
        batch["receipt"] = receipt
        if sample.steps is not None:
            batch["n_step"] = sample.steps.astype(np.float32)
        return batch

    def _rows(self, positions: Ints) -> tuple[Floats, Ints | None]:
        if self._n_step == 1:
            return self.storage.rows.take(positions, axis=0), None
        return self.storage.n_step_rows(positions, self._n_step, self._gamma)

    def _weights(self, positions: Ints) -> Floats:
        if self._weighted:
            return self.sampler.weights(positions)
        return np.ones(len(positions), np.float32)

    def update(self, receipt: "Receipt", td_errors: Doubles | Floats) -> None:
        """Hand back the |TD error| of sampled rows; rows overwritten since are skipped."""
        errors = np.asarray(td_errors, np.float64)
        if receipt.partners is not None and receipt.lam is not None:
            self.sampler.update_parents(receipt.numbers, receipt.partners, receipt.lam, errors)
        else:
            self.sampler.update(receipt.numbers, errors)

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
