"""Convex mixtures of a row and its partner: mixup and NMER, and what CT shares with them."""

from typing import Any, Literal

import numpy as np

from replay_buffers.augmentations.base import Plain, Sample
from replay_buffers.errors import ReplayError
from replay_buffers.storage import ACTIONS, NEXT_OBS, OBS, Bools, Doubles, Floats


def mixable(sample: Sample) -> Bools:
    """Rows that have a partner whose reward spans as many steps as their own."""
    if sample.partners is None or sample.partnered is None:
        raise ReplayError("a mixture needs partner rows; give its recipe a partner")
    if sample.steps is not None and sample.partner_steps is not None:
        return sample.partnered & (sample.steps == sample.partner_steps)
    return sample.partnered.copy()


def away_from_ends(sample: Sample) -> Bools:
    """`mixable` rows neither terminal themselves nor with a terminal partner."""
    mixed = mixable(sample)
    assert sample.partners is not None  # mixable has checked it
    return mixed & (sample.rows[:, -2] == 0) & (sample.partners[:, -2] == 0)


def mix(sample: Sample, lam: Floats, mixed: Bools, part: slice, *, use_delta: bool = False) -> None:
    """Write `y + lam * (x - y)` into columns `part` of the `mixed` rows, and mix their weights.

    `lam` `[n]` is the share of the sampled row x. Equal rows mix to themselves exactly. With
    `use_delta` new_obs is the mixed obs plus the mixture of the two differences new_obs - obs: the
    same number by another road, to rounding.
    """
    assert sample.partners is not None
    lam[~mixed] = 1.0
    x, y = sample.rows[mixed], sample.partners[mixed]
    share = lam[mixed, None]
    sample.rows[mixed, part] = y[:, part] + share * (x[:, part] - y[:, part])
    if use_delta:
        obs, new_obs = sample.schema.column(OBS), sample.schema.column(NEXT_OBS)
        delta_x, delta_y = x[:, new_obs] - x[:, obs], y[:, new_obs] - y[:, obs]
        delta = delta_y + share * (delta_x - delta_y)
        sample.rows[mixed, new_obs] = sample.rows[mixed, obs] + delta
    # Rounding may step one float past the box that both parents lie in.
    actions = sample.rows[:, sample.schema.column(ACTIONS)]
    np.clip(actions, -1.0, 1.0, out=actions)
    if sample.partner_weights is not None:
        other = sample.partner_weights
        sample.weights = np.where(mixed, other + lam * (sample.weights - other), sample.weights)
    sample.lam = lam


class MixtureFigures:
    """Counts what mixtures did since the last report."""

    def __init__(self) -> None:
        self._lam_sum, self._mixed, self._seen = 0.0, 0, 0

    def count(self, lam: Floats, mixed: Bools) -> None:
        self._lam_sum += float(lam[mixed].sum())
        self._mixed += int(mixed.sum())
        self._seen += len(lam)

    def report(self) -> dict[str, float]:
        """Fraction of rows mixed and mean lam of those since the last call."""
        figures = {"mixed_fraction": self._mixed / max(1, self._seen)}
        if self._mixed:
            figures["mean_lam"] = self._lam_sum / self._mixed
        self._lam_sum, self._mixed, self._seen = 0.0, 0, 0
        return figures

    def get_state(self) -> tuple[float, int, int]:
        return self._lam_sum, self._mixed, self._seen

    def set_state(self, state: tuple[float, int, int]) -> None:
        self._lam_sum, self._mixed, self._seen = state


class Mixture(Plain):
    """`y + lam * (x - y)` for row x and partner y, one lam per row (mixup, arXiv 1710.09412).

    obs, action, reward and new_obs are mixed with the same lam; lam weights the sampled row. A pair
    in which either row is terminal is not mixed: an episode's end does not interpolate, and data
    decides it, never a table of environments. The flags stay the sampled row's. The importance
    weight of a mixture is the mixture of its parents' weights.

    Args:
        law: "beta" draws lam from Beta(alpha, alpha), "uniform" from U(0, 1).
        alpha: the Beta law's parameter.
        probability: the chance of a row being mixed at all, drawn per row.
        decay: by how much that chance falls with every row added, down to 0.
        use_delta: see `mix`.

    Raises:
        ReplayError: alpha not positive, probability outside [0, 1], negative decay, unknown law.
    """

    def __init__(
        self,
        *,
        law: Literal["beta", "uniform"] = "beta",
        alpha: float = 0.75,
        probability: float = 1.0,
        decay: float = 0.0,
        use_delta: bool = False,
    ) -> None:
        if alpha <= 0:
            raise ReplayError(f"--mixup_alpha is {alpha}; Beta(a, a) needs a positive a")
        if not 0 <= probability <= 1:
            raise ReplayError(f"--prob_interpolation is {probability}; it must lie in [0, 1]")
        if decay < 0:
            raise ReplayError(f"--interp_decay_rate is {decay}; it must be 0 or more")
        if law not in ("beta", "uniform"):
            raise ReplayError(f"the mixing law {law!r} is unknown; choose 'beta' or 'uniform'")
        self._law, self._alpha = law, alpha
        self._probability, self._decay = probability, decay
        self._use_delta = use_delta
        self._figures = MixtureFigures()

    def draw(self, count: int, rng: np.random.Generator) -> Doubles:
        """`[count]` shares lam of the law."""
        if self._law == "uniform":
            return rng.random(count)
        return rng.beta(self._alpha, self._alpha, count)

    def __call__(self, sample: Sample, rng: np.random.Generator) -> None:
        mixed = away_from_ends(sample)
        count = len(sample.rows)
        lam = self.draw(count, rng).astype(np.float32)
        mixed &= rng.random(count) < self._probability - self._decay * sample.added
        mix(sample, lam, mixed, sample.schema.continuous, use_delta=self._use_delta)
        sample.mixed = mixed
        self._figures.count(lam, mixed)

    def stats(self) -> dict[str, float]:
        """Fraction of rows mixed and mean lam of those since the last call."""
        return self._figures.report()

    def get_state(self) -> dict[str, Any]:
        return {"figures": self._figures.get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        self._figures.set_state(state["figures"])
