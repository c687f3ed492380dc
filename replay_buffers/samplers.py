"""Which rows? Uniformly, or in proportion to a priority."""

from typing import Any, Protocol

import numpy as np

from replay_buffers.errors import ReplayError
from replay_buffers.parts import Stateless
from replay_buffers.storage import Doubles, Floats, Ints, Storage
from replay_buffers.trees import WideTree, tree_bytes


class Sampler(Protocol):
    """Draws positions of a storage, with replacement."""

    def added(self, positions: Ints) -> None:
        """Told after rows were written at `positions`."""

    def sample(self, count: int, rng: np.random.Generator) -> Ints:
        """`count` positions."""

    def weights(self, positions: Ints) -> Floats:
        """Importance weights of `positions`, 1 where sampling is unbiased."""

    def update(self, numbers: Ints, td_errors: Doubles) -> None:
        """Told the |TD error| of the rows with write numbers `numbers`."""

    def update_parents(
        self, numbers: Ints, partners: Ints, lam: Floats, td_errors: Doubles
    ) -> None:
        """Told the |TD error| of mixtures, to be shared between their parents."""

    def stats(self) -> dict[str, float]:
        """Figures for the run's metrics."""

    def get_state(self) -> dict[str, Any]: ...

    def set_state(self, state: dict[str, Any]) -> None: ...


class UniformSampler(Stateless):
    """Every stored row is equally likely."""

    prioritized = False

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def added(self, positions: Ints) -> None:
        pass

    def sample(self, count: int, rng: np.random.Generator) -> Ints:
        return rng.integers(len(self._storage), size=count)

    def weights(self, positions: Ints) -> Floats:
        return np.ones(len(positions), np.float32)

    def update(self, numbers: Ints, td_errors: Doubles) -> None:
        pass

    def update_parents(
        self, numbers: Ints, partners: Ints, lam: Floats, td_errors: Doubles
    ) -> None:
        pass


def priority_bytes(capacity: int) -> int:
    """Bytes of a `PrioritizedSampler`: the priorities and a tree each of sums and minima."""
    return 8 * capacity + 2 * tree_bytes(capacity)


class PrioritizedSampler:
    """Proportional prioritization (Schaul et al. 2016, arXiv 1511.05952, section 3.3 and 3.4).

    P(i) = p_i^alpha / sum_j p_j^alpha with p = |td| + epsilon; a new row gets the largest priority
    seen so far, so that it is replayed soon. Weights are (N P(i))^-beta divided by their maximum
    over the buffer. beta moves linearly from `beta` to `final_beta` while `anneal_rows` rows are
    added (the run's budget), and stays at `beta` when that is 0.

    Raises:
        ReplayError: an exponent outside its range.
    """

    prioritized = True

    def __init__(
        self,
        storage: Storage,
        *,
        alpha: float = 0.6,
        beta: float = 0.4,
        final_beta: float = 1.0,
        anneal_rows: int = 0,
        epsilon: float = 1e-6,
    ) -> None:
        if alpha < 0 or not 0 <= beta <= 1 or not 0 <= final_beta <= 1:
            raise ReplayError(
                f"prioritized replay got alpha={alpha}, beta={beta}, final beta={final_beta}; "
                "alpha must be 0 or more and both betas between 0 and 1"
            )
        self._storage = storage
        self._alpha, self._epsilon = alpha, epsilon
        self._beta, self._final_beta, self._anneal_rows = beta, final_beta, anneal_rows
        self._largest = 1.0
        self._priorities: Doubles = np.zeros(storage.capacity)
        self._sums = WideTree(storage.capacity, np.add, 0.0)
        self._minima = WideTree(storage.capacity, np.minimum, np.inf)

    @property
    def beta(self) -> float:
        """The exponent of the importance weights now."""
        if self._anneal_rows <= 0:
            return self._beta
        progress = min(1.0, self._storage.written / self._anneal_rows)
        return self._beta + progress * (self._final_beta - self._beta)

    def _set(self, positions: Ints, priorities: Doubles) -> None:
        powers = priorities**self._alpha
        self._priorities[positions] = priorities
        self._sums.set(positions, powers)
        self._minima.set(positions, powers)

    def added(self, positions: Ints) -> None:
        self._set(positions, np.full(len(positions), self._largest))

    def sample(self, count: int, rng: np.random.Generator) -> Ints:
        return self._sums.find(rng.random(count) * self._sums.root)

    def probabilities(self, positions: Ints) -> Doubles:
        """P(i) of `positions`."""
        return self._sums.get(positions) / self._sums.root

    def weights(self, positions: Ints) -> Floats:
        # (N P)^-beta over its maximum is (P / min P)^-beta: N and the sum cancel.
        ratio = self._sums.get(positions) / self._minima.root
        return (ratio**-self.beta).astype(np.float32)

    def update(self, numbers: Ints, td_errors: Doubles) -> None:
        alive = self._storage.alive(numbers)
        self._assign(numbers[alive], np.abs(td_errors[alive].astype(np.float64)) + self._epsilon)

    def update_parents(
        self, numbers: Ints, partners: Ints, lam: Floats, td_errors: Doubles
    ) -> None:
        """p_i <- lam |td| + (1 - lam) p_i and p_j <- (1 - lam) |td| + lam p_j.

        i is the sampled row (`numbers`), j its partner; where lam is 1 nothing goes to j. All old
        priorities are read before any is written.
        """
        share = lam.astype(np.float64)
        td = np.abs(td_errors.astype(np.float64)) + self._epsilon
        kept_i = self._storage.alive(numbers)
        kept_j = self._storage.alive(partners) & (lam < 1)
        old_i, old_j = self._priority(numbers[kept_i]), self._priority(partners[kept_j])
        a, b = share[kept_i], share[kept_j]
        self._assign(partners[kept_j], (1 - b) * td[kept_j] + b * old_j)
        self._assign(numbers[kept_i], a * td[kept_i] + (1 - a) * old_i)

    def _priority(self, numbers: Ints) -> Doubles:
        priorities: Doubles = self._priorities[numbers % self._storage.capacity]
        return priorities

    def _assign(self, numbers: Ints, priorities: Doubles) -> None:
        if not np.isfinite(priorities).all():
            raise ReplayError(
                "a TD error is not finite, so its row has no priority; training has diverged: "
                "lower the learning rates"
            )
        if len(priorities):
            self._largest = max(self._largest, float(priorities.max()))
            self._set(numbers % self._storage.capacity, priorities)

    def stats(self) -> dict[str, float]:
        size = max(1, len(self._storage))
        return {
            "per_beta": self.beta,
            "per_largest_priority": self._largest,
            "per_max_probability_times_size": (
                float(self._sums.leaves.max()) / self._sums.root * size
                if len(self._storage)
                else 0.0
            ),
        }

    def get_state(self) -> dict[str, Any]:
        size = len(self._storage)
        return {"priorities": self._priorities[:size].copy(), "largest": self._largest}

    def set_state(self, state: dict[str, Any]) -> None:
        self._sums.clear()
        self._minima.clear()
        priorities = np.asarray(state["priorities"], np.float64)
        self._set(np.arange(len(priorities)), priorities)
        self._largest = float(state["largest"])
