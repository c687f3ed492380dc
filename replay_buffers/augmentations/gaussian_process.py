"""BIER: the mixed (obs, action) keeps its place, its outcome comes from a Gaussian process."""

import functools
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from replay_buffers.augmentations.base import Context, Plain, Sample
from replay_buffers.augmentations.mixture import Mixture
from replay_buffers.gaussian_process import holdout
from replay_buffers.gaussian_process.neighborhoods import Neighborhoods, Reader
from replay_buffers.gaussian_process.queue import Fill, SyntheticQueue, occurrences
from replay_buffers.gaussian_process.settings import GaussianProcessSettings, check
from replay_buffers.gaussian_process.surrogate import Surrogate
from replay_buffers.gaussian_process.synthesis import AT_ONCE, Synthesizer, synthetic_shape
from replay_buffers.partners import NearestPartner
from replay_buffers.storage import Bools, Doubles, Ints, Storage

_HOLDOUT_NEIGHBORHOODS = 64
# The weight of a row without a density, and the one of a row that is certain.
_LEAST_WEIGHT, _MOST_WEIGHT = 0.5, 1.0


class GaussianProcess(Plain):
    """Replaces a mixture's reward and next state by what its neighbourhood predicts.

    Sander 2021 (MIT thesis): the query is lam x_i + (1 - lam) x_j in (obs, action); an exact
    Gaussian process for each output, on row i and its k nearest neighbours, predicts the reward and
    the next state there. Which rows are mixed, with whom and with which lam is `Mixture`'s. A
    process that can't be factored leaves the linear mixture, and is counted.

    Args:
        mixture: of the rows, before predictions replace their outcome.
        rows: neighbourhoods of the storage.
        settings: of the process.
        queue: of synthetic rows made in advance, None to make each when it is sampled.
        furthest: highest rank of a neighbour that the queue mixes with.
    """

    def __init__(
        self,
        mixture: Mixture,
        rows: Neighborhoods,
        settings: GaussianProcessSettings,
        *,
        queue: SyntheticQueue | None = None,
        furthest: int = 1,
    ) -> None:
        self._mixture, self._rows, self._settings = mixture, rows, settings
        self._queue, self._furthest = queue, furthest
        self._surrogate = Surrogate(settings, rows)
        self._synthesizer = Synthesizer(rows, self._surrogate, settings)
        self._added, self._seconds = 0, 0.0

    @classmethod
    def of(
        cls,
        storage: Storage,
        partner: NearestPartner,
        read: Reader,
        settings: GaussianProcessSettings,
        *,
        mixture: Mixture,
        use_delta: bool = False,
    ) -> "GaussianProcess":
        """For the rows of a storage and the partners they are mixed with.

        Raises:
            ReplayError: settings that can't be used, or a package that is not installed.
        """
        check(settings)
        on_gpu = torch.cuda.is_available() and not settings.cpu_only
        rows = Neighborhoods(
            storage,
            partner.neighbors,
            read,
            use_delta=use_delta,
            dtype=torch.float32 if settings.fp32 else torch.float64,
            device=torch.device("cuda" if on_gpu else "cpu"),
        )
        queue = None
        if settings.use_queue:
            shape = synthetic_shape(settings, storage.schema.obs_dim, storage.schema.action_dim)
            queue = SyntheticQueue(storage.capacity, settings.queue_gb, *shape)
        return cls(mixture, rows, settings, queue=queue, furthest=partner.furthest)

    def attach(self, context: Context) -> None:
        self._surrogate.say = context.say

    def __call__(self, sample: Sample, rng: np.random.Generator) -> None:
        self._mixture(sample, rng)  # what stays where the process has no answer
        assert sample.mixed is not None
        chosen = np.flatnonzero(sample.mixed)
        if len(chosen) == 0:
            return
        self._added = sample.added
        self._surrogate.refit(sample.added, rng)
        started = time.perf_counter()
        make = self._now if self._queue is None else self._from_queue
        density = make(sample, chosen, rng)
        if self._settings.weighted_updates:
            self._weigh(sample, chosen, density)
        self._seconds += time.perf_counter() - started

    def _now(self, sample: Sample, chosen: Ints, rng: np.random.Generator) -> Doubles:
        """Predict the outcomes of rows `chosen` `[n]`; their log densities, NaN without."""
        densities = np.full(len(chosen), np.nan)
        for lines, own, lists in self._neighborhoods(sample, chosen):
            index = chosen[lines]
            data = None if self._settings.single_model else self._rows.regression(own, lists)
            made = self._synthesizer(data, sample.rows[index][..., sample.schema.features], rng)
            sample.rows[index[made.good], self._rows.targets] = made.outcome[made.good]
            if made.log_density is not None:
                densities[lines] = made.log_density
        return densities

    def _neighborhoods(self, sample: Sample, chosen: Ints) -> Iterator[tuple[Ints, Ints, Ints]]:
        """Parts of `chosen`, rows of one neighbourhood in a line: (lines `[g, q]`, own, lists)."""
        own, lists = _members(sample, chosen)
        if self._settings.single_model:
            yield np.arange(len(own))[None], own[:1], lists[:1]
            return
        lines = _runs(own) if self._settings.multi_sample else np.arange(len(own))[:, None]
        for start in range(0, len(lines), AT_ONCE):
            part = lines[start : start + AT_ONCE]
            yield part, own[part[:, 0]], lists[part[:, 0]]

    def _from_queue(self, sample: Sample, chosen: Ints, rng: np.random.Generator) -> Doubles:
        """As `_now`, but the rows were made in advance, with partners and lam of their own."""
        assert self._queue is not None and sample.lam is not None
        own, lists = _members(sample, chosen)
        numbers = self._rows.numbers(own, lists)

        def fill(index: Ints, kept: Doubles, stands: Bools) -> Fill:
            draw, furthest = self._mixture.draw, self._furthest
            return self._synthesizer.fill(
                own[index], lists[index], kept, stands, draw, furthest, rng
            )

        tokens = _tokens(numbers, self._surrogate.version)
        made = self._queue.take(own, numbers[:, 0], tokens, fill)
        features = sample.schema.features
        sample.rows[chosen, features] = made[:, : features.stop]
        sample.rows[chosen, self._rows.targets] = made[:, features.stop : -2]
        sample.lam[chosen] = made[:, -2]
        return made[:, -1].astype(np.float64)

    def _weigh(self, sample: Sample, chosen: Ints, log_density: Doubles) -> None:
        """Multiply the rows' weights by sigmoid(density), brought to mean 1.

        A real row is certain and weighs what an infinite density would.
        """
        weights = np.full(len(sample.rows), _MOST_WEIGHT)
        with np.errstate(over="ignore"):
            of_density = 1 / (1 + np.exp(-np.exp(log_density)))
        weights[chosen] = np.nan_to_num(of_density, nan=_LEAST_WEIGHT)
        sample.weights = (sample.weights * (weights / weights.mean())).astype(np.float32)

    def evaluate(self) -> dict[str, float]:
        """Errors on neighbours held out of their neighbourhoods: see `holdout.evaluate`.

        Draws nothing from the buffer's generator, so that looking changes no batch.
        """
        settings, rng = self._settings, np.random.default_rng(self._added)
        if settings.single_model:
            data = self._rows.anywhere(settings.train_size, rng)
        else:
            data = self._rows.regression(*self._rows.draw(_HOLDOUT_NEIGHBORHOODS, rng))
        parts = holdout.split(data, settings.holdout_split, rng)
        if parts is None:
            return {}
        h = self._surrogate.hyperparameters(parts.kept)
        return holdout.evaluate(self._surrogate.processes, h, parts, self._rows.names)

    def stats(self) -> dict[str, float]:
        """The mixture's figures, fallbacks, fits, seconds of prediction, held-out errors."""
        figures = {
            **self._mixture.stats(),
            **self._synthesizer.stats(),
            **self._surrogate.stats(),
            "gp_seconds": self._seconds,
        }
        self._seconds = 0.0
        if self._queue is not None:
            figures |= self._queue.stats()
        if self._settings.perform_holdout_eval and self._added:
            figures |= self.evaluate()
        return figures

    def get_state(self) -> dict[str, Any]:
        """Hyperparameters and when they are due, the queues, and the figures so far."""
        return {
            "mixture": self._mixture.get_state(),
            "synthesizer": self._synthesizer.get_state(),
            "seconds": self._seconds,
            "surrogate": self._surrogate.get_state(),
            "queue": None if self._queue is None else self._queue.get_state(),
            "added": self._added,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        self._mixture.set_state(state["mixture"])
        self._synthesizer.set_state(state["synthesizer"])
        self._seconds = float(state["seconds"])
        self._surrogate.set_state(state["surrogate"])
        self._added = int(state["added"])
        if self._queue is not None:
            self._queue.set_state(state["queue"])


def _members(sample: Sample, chosen: Ints) -> tuple[Ints, Ints]:
    """Positions `[n]` of the chosen rows, and of their neighbours `[n, k]`."""
    assert sample.positions is not None and sample.neighbors is not None
    return sample.positions[chosen], sample.neighbors[chosen]


def _runs(own: Ints) -> Ints:
    """Indices of equal elements, a line for each; short lines repeat their first."""
    first, inverse, rank = occurrences(own)
    lines = np.repeat(first[:, None], rank.max() + 1, axis=1)
    lines[inverse, rank] = np.arange(len(own))
    return lines


@functools.cache
def _factors(count: int) -> Ints:
    """Odd numbers that tell neighbourhoods apart."""
    return np.random.default_rng(0).integers(2**62, size=count) | 1


def _tokens(numbers: Ints, version: int) -> Ints:
    """A number of each neighbourhood `[n, 1 + k]` (write numbers) and of the hyperparameters."""
    factors = _factors(numbers.shape[1] + 1)
    with np.errstate(over="ignore"):
        tokens: Ints = numbers @ factors[1:] + version * factors[0]
    return tokens
