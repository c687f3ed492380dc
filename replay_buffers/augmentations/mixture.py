"""Convex mixtures of a row and its partner: mixup and NMER."""

from typing import Any, Literal

import numpy as np

from replay_buffers.augmentations.base import Sample
from replay_buffers.errors import ReplayError
from replay_buffers.storage import ACTIONS, Doubles


class Mixture:
    """`y + lam * (x - y)` for row x and partner y, one lam per row (mixup, arXiv 1710.09412).

    obs, action, reward and new_obs are mixed with the same lam; lam weights the sampled row. A pair
    in which either row is terminal is not mixed: an episode's end does not interpolate, and data
    decides it, never a table of environments. The flags stay the sampled row's. The importance
    weight of a mixture is the mixture of its parents' weights.

    Args:
        law: "beta" draws lam from Beta(alpha, alpha), "uniform" from U(0, 1).
        alpha: the Beta law's parameter.
        probability: the chance of a row being mixed at all, drawn per row.

    Raises:
        ReplayError: alpha not positive, probability outside [0, 1], unknown law.
    """

    def __init__(
        self,
        *,
        law: Literal["beta", "uniform"] = "beta",
        alpha: float = 0.75,
        probability: float = 1.0,
    ) -> None:
        if alpha <= 0:
            raise ReplayError(f"--mixup_alpha is {alpha}; Beta(a, a) needs a positive a")
        if not 0 <= probability <= 1:
            raise ReplayError(f"--prob_interpolation is {probability}; it must lie in [0, 1]")
        if law not in ("beta", "uniform"):
            raise ReplayError(f"the mixing law {law!r} is unknown; choose 'beta' or 'uniform'")
        self._law, self._alpha, self._probability = law, alpha, probability
        self._lam_sum, self._mixed, self._seen = 0.0, 0, 0

    def _draw(self, count: int, rng: np.random.Generator) -> Doubles:
        if self._law == "uniform":
            return rng.random(count)
        return rng.beta(self._alpha, self._alpha, count)

    def __call__(self, sample: Sample, rng: np.random.Generator) -> None:
        if sample.partners is None or sample.partnered is None:
            raise ReplayError("a mixture needs partner rows; give its recipe a partner")
        count = len(sample.rows)
        lam = self._draw(count, rng).astype(np.float32)
        mixed = sample.partnered & (sample.rows[:, -2] == 0) & (sample.partners[:, -2] == 0)
        mixed &= rng.random(count) < self._probability
        lam[~mixed] = 1.0
        part = sample.schema.continuous
        x, y = sample.rows[mixed, part], sample.partners[mixed, part]
        sample.rows[mixed, part] = y + lam[mixed, None] * (x - y)
        # Rounding may step one float past the box that both parents lie in.
        actions = sample.rows[:, sample.schema.column(ACTIONS)]
        np.clip(actions, -1.0, 1.0, out=actions)
        if sample.partner_weights is not None:
            other = sample.partner_weights
            sample.weights = np.where(mixed, other + lam * (sample.weights - other), sample.weights)
        self._lam_sum += float(lam[mixed].sum())
        self._mixed += int(mixed.sum())
        self._seen += count

    def stats(self) -> dict[str, float]:
        """Fraction of rows mixed and mean lam of those since the last call."""
        figures = {"mixed_fraction": self._mixed / max(1, self._seen)}
        if self._mixed:
            figures["mean_lam"] = self._lam_sum / self._mixed
        self._lam_sum, self._mixed, self._seen = 0.0, 0, 0
        return figures

    def get_state(self) -> dict[str, Any]:
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        pass
