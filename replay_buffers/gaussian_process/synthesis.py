"""Synthetic outcomes (reward, new_obs) at chosen (obs, action), as a batch or in advance."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from replay_buffers.gaussian_process.kernels import Hyperparameters, concatenate
from replay_buffers.gaussian_process.neighborhoods import Neighborhoods
from replay_buffers.gaussian_process.queue import DEPTH, Fill, queue_bytes
from replay_buffers.gaussian_process.regression import Regression
from replay_buffers.gaussian_process.settings import GaussianProcessSettings
from replay_buffers.gaussian_process.surrogate import Surrogate, kernel_of
from replay_buffers.storage import ACTIONS, Bools, Doubles, Floats, Ints

# Neighbourhoods read and predicted together.
AT_ONCE = 256


def synthetic_shape(
    settings: GaussianProcessSettings, obs_dim: int, action_dim: int
) -> tuple[int, int]:
    """Width of a queue's row [features | reward | new_obs | lam | log density], and how many
    hyperparameters a row keeps of its own."""
    dims, targets = obs_dim + action_dim, 1 + obs_dim
    width = dims + targets + 2
    if not settings.update_hyperparams:
        return width, 0
    like = torch.empty(0, min(dims, settings.gp_pca_components) if settings.gp_pca else dims)
    outputs = targets if settings.per_output_hyperparams else 1
    kernel = kernel_of(settings, obs_dim)
    return width, Hyperparameters.start(kernel, 1, outputs, targets, like).pack().shape[1]


def synthetic_bytes(
    settings: GaussianProcessSettings, obs_dim: int, action_dim: int, capacity: int
) -> int:
    """Bytes of the queues of a storage."""
    shape = synthetic_shape(settings, obs_dim, action_dim)
    return queue_bytes(capacity, settings.queue_gb, *shape)


@dataclass(frozen=True)
class Synthetic:
    """Outcomes at q queries of each of g neighbourhoods.

    Attributes:
        outcome: `[g, q, P]` float32, reward and new_obs.
        good: `[g, q]` bool, where there is one.
        log_density: `[g, q]`, NaN where not good; None when it was not asked for.
    """

    outcome: Floats
    good: Bools
    log_density: Doubles | None


class Synthesizer:
    """Asks the surrogate, draws if told to, and counts what happened.

    Args:
        rows: neighbourhoods of the storage.
        surrogate: their Gaussian processes.
        settings: the same that these have.
    """

    def __init__(
        self, rows: Neighborhoods, surrogate: Surrogate, settings: GaussianProcessSettings
    ) -> None:
        self._rows, self._surrogate, self._settings = rows, surrogate, settings
        self._counts = {"synthetic": 0, "failed": 0, "repaired": 0}

    def __call__(
        self,
        data: Regression | None,
        features: Floats,
        rng: np.random.Generator,
        h: Hyperparameters | None = None,
    ) -> Synthetic:
        """At features `[g, q, D]` of neighbourhoods `data` (None for the single model's)."""
        settings = self._settings
        queries = self._rows.tensor(features)
        found = self._surrogate.predict(
            data,
            queries,
            h,
            variance=settings.sample_gp_cov or settings.weighted_updates,
            spread=settings.sample_gp_cov,
        )
        predicted = found.mean
        if settings.sample_gp_cov:
            predicted = found.draw(self._rows.tensor(rng.standard_normal(predicted.shape)))
        outcome = self._rows.outcome(predicted, queries)
        good = np.isfinite(outcome).all(-1) & ~found.failed.cpu().numpy()[:, None]
        self._counts["synthetic"] += good.size
        self._counts["failed"] += int((~good).sum())
        self._counts["repaired"] += int(found.repaired.sum()) * good.shape[1]
        if not settings.weighted_updates:
            return Synthetic(outcome, good, None)
        density = np.where(good, found.log_density().cpu().numpy(), np.nan)
        return Synthetic(outcome, good, density)

    def fill(
        self,
        own: Ints,
        lists: Ints,
        kept: Doubles,
        stands: Bools,
        draw_lam: Callable[[int, np.random.Generator], Doubles],
        furthest: int,
        rng: np.random.Generator,
    ) -> Fill:
        """Queues for rows `own` `[n]` with neighbours `[n, k]`: see `SyntheticQueue.take`.

        Partners are drawn as they are for a batch: among the nearest `furthest` rows that may be
        mixed.
        """
        parts = []
        for start in range(0, len(own), AT_ONCE):
            part = slice(start, start + AT_ONCE)
            data = self._rows.regression(own[part], lists[part])
            h = self._own_hyperparameters(data, kept[part], stands[part])
            lam = draw_lam(len(data) * DEPTH, rng).astype(np.float32).reshape(-1, DEPTH)
            rows = self._mixtures(data, lam, _picks(data, furthest, rng), h, rng)
            parts.append((rows, None if h is None else h.pack().cpu().numpy()))
        rows = np.concatenate([part[0] for part in parts])
        own_sets = [part[1] for part in parts if part[1] is not None]
        return Fill(rows, np.concatenate(own_sets) if own_sets else None)

    def _mixtures(
        self,
        data: Regression,
        lam: Floats,
        picks: Ints,
        h: Hyperparameters | None,
        rng: np.random.Generator,
    ) -> Floats:
        """Mixtures of row 0 with rows `picks` `[g, DEPTH]`, with what is predicted there."""
        share = lam[..., None]

        def mixed(values: torch.Tensor) -> Floats:
            known = values.cpu().numpy().astype(np.float32)
            x, y = known[:, :1], np.take_along_axis(known, picks[..., None], 1)
            return y + share * (x - y)

        features = mixed(data.x)
        actions = features[..., self._rows.schema.column(ACTIONS)]
        np.clip(actions, -1.0, 1.0, out=actions)
        made = self(data, features, rng, h)
        linear = self._rows.outcome(self._rows.tensor(mixed(data.y)), self._rows.tensor(features))
        outcome = np.where(made.good[..., None], made.outcome, linear)
        density = np.zeros_like(lam) if made.log_density is None else made.log_density
        columns = (features, outcome, share, density[..., None].astype(np.float32))
        return np.concatenate(columns, -1)

    def _own_hyperparameters(
        self, data: Regression, kept: Doubles, stands: Bools
    ) -> Hyperparameters | None:
        """Of each row where they keep their own: as they were, fine-tuned, or fitted from scratch.

        None where they are shared, or fitted for each batch and forgotten.
        """
        if not self._settings.update_hyperparams:
            return None
        shape = self._surrogate.start(data)
        new = np.isnan(kept).any(axis=1)
        parts, order = [], []
        for which, begin, epochs in ((new, False, None), (~new & ~stands, True, 1)):
            index = np.flatnonzero(which)
            if len(index):
                start = shape.unpack(self._rows.tensor(kept[index])) if begin else None
                parts.append(self._surrogate.fit(data.of(index), start, epochs))
                order.append(index)
        index = np.flatnonzero(~new & stands)
        if len(index):
            parts.append(shape.unpack(self._rows.tensor(kept[index])))
            order.append(index)
        return concatenate(parts).of(np.argsort(np.concatenate(order)))

    def stats(self) -> dict[str, float]:
        """Shares of synthetic rows that fell back on the mixture, and that needed jitter."""
        made = max(1, self._counts["synthetic"])
        figures = {
            "gp_fallback_fraction": self._counts["failed"] / made,
            "gp_jitter_fraction": self._counts["repaired"] / made,
        }
        self._counts = dict.fromkeys(self._counts, 0)
        return figures

    def get_state(self) -> dict[str, int]:
        return dict(self._counts)

    def set_state(self, state: dict[str, int]) -> None:
        self._counts = dict(state)


def _picks(data: Regression, furthest: int, rng: np.random.Generator) -> Ints:
    """Rows `[g, DEPTH]` of each neighbourhood to mix row 0 with."""
    groups, rows = data.x.shape[:2]
    last = min(rows, 1 + furthest)
    draws = rng.random((groups, DEPTH))
    if data.mask is None:
        return 1 + (draws * (last - 1)).astype(np.int64)
    live = data.mask[:, 1:last].cpu().numpy()
    ranked = 1 + np.argsort(~live, axis=1, kind="stable")  # the live ones first
    chosen = (draws * live.sum(1, keepdims=True)).astype(np.int64)
    return np.take_along_axis(ranked, chosen, 1)
