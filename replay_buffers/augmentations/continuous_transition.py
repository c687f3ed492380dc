"""Continuous Transition: mixtures of successive steps, as bold as an energy model allows."""

import math
from typing import Any

import numpy as np

from replay_buffers.augmentations.base import Context, Plain, Sample
from replay_buffers.augmentations.energy_model import EnergyModel
from replay_buffers.augmentations.mixture import MixtureFigures, mix, mixable
from replay_buffers.errors import ReplayError
from replay_buffers.storage import Schema

_LEAST, _MOST = 1e-6, 1.0
# Adam's (arXiv 1412.6980), for b: its own step, since a tensor of one number costs 0.1 ms.
_MEAN, _SQUARE, _EPSILON = 0.9, 0.999, 1e-8


class AdaptiveMixture(Plain):
    """Mixes a step with the next one of its episode, lam ~ Beta(b, b) with b learned.

    Lin et al. 2021 (arXiv 2011.14487). A model D(s, a) -> (r, s') learns by mean squared error on
    the real rows of every batch. The energy of a mixture is the mean squared difference between D
    at the mixed (s, a) and the same mixture of D's two outputs: 0 where the dynamics are linear. b
    follows the gradient of log(b) (energy - tolerance), so it falls where mixtures lie off the
    manifold and rises to 1 where they don't. `terminated` is mixed as a float, too; the last step
    of an episode has no partner and passes as it is.

    Args:
        schema: of the rows.
        seed: of the model's initial weights.
        use_delta: see `mix`.
        fixed: keep b at this value and learn nothing (what the old code did).
        tolerance: the energy that is still acceptable.
        learning_rate: of model and b, until `attach` brings the critic's.

    Attributes:
        b: the parameter of Beta(b, b).
    """

    def __init__(
        self,
        schema: Schema,
        seed: int,
        *,
        fixed: float | None = None,
        use_delta: bool = False,
        tolerance: float = 0.1,
        learning_rate: float = 3e-4,
    ) -> None:
        if fixed is not None and fixed <= 0:
            raise ReplayError(f"--mixup_alpha is {fixed}; Beta(b, b) needs a positive b")
        self.sequential = fixed is None
        self._fixed, self._tolerance = fixed, tolerance
        self._use_delta = use_delta
        self._model = EnergyModel(schema, seed, learning_rate)
        self.b = 1.0 if fixed is None else fixed
        self._figures = MixtureFigures()
        self._energy = 0.0
        self._begin(learning_rate)

    def _begin(self, learning_rate: float) -> None:
        self._learning_rate = learning_rate
        # Of b's gradients: running mean, running mean of squares, and how many there were.
        self._moments = 0.0, 0.0, 0

    def attach(self, context: Context) -> None:
        self._model.optimize(context.learning_rate)
        self._begin(context.learning_rate)

    def __call__(self, sample: Sample, rng: np.random.Generator) -> None:
        mixed = mixable(sample)
        assert sample.partners is not None  # mixable has checked it
        count = len(sample.rows)
        lam = rng.beta(self.b, self.b, count).astype(np.float32)
        real, partners = sample.rows.copy(), sample.partners
        flags_too = slice(0, sample.schema.width - 1)  # all but `truncated`
        mix(sample, lam, mixed, flags_too, use_delta=self._use_delta)
        self._figures.count(lam, mixed)
        if self._fixed is None and mixed.any():
            of_mixed = partners[mixed], sample.rows[mixed], lam[mixed]
            self._energy = self._model.step(real, *of_mixed, mixed)
            self._follow(self._energy)

    def _follow(self, energy: float) -> None:
        """One step of b on the mean of log(b) (energy - tolerance) over the mixtures."""
        gradient = (energy - self._tolerance) / self.b
        mean, square, steps = self._moments
        mean += (1 - _MEAN) * (gradient - mean)
        square += (1 - _SQUARE) * (gradient**2 - square)
        steps += 1
        size = math.sqrt(square / (1 - _SQUARE**steps)) + _EPSILON
        step = self._learning_rate * mean / (1 - _MEAN**steps) / size
        self.b = min(max(self.b - step, _LEAST), _MOST)
        self._moments = mean, square, steps

    def stats(self) -> dict[str, float]:
        """b, the last energy, the fraction mixed and its mean lam."""
        return {"ct_b": self.b, "ct_energy": self._energy, **self._figures.report()}

    def get_state(self) -> dict[str, Any]:
        """Model and b with what their optimizers remember, and the figures so far."""
        return {
            "model": self._model.get_state(),
            "b": self.b,
            "moments": self._moments,
            "learning_rate": self._learning_rate,
            "energy": self._energy,
            "figures": self._figures.get_state(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        self._model.set_state(state["model"])
        self.b, self._moments = float(state["b"]), state["moments"]
        self._learning_rate = float(state["learning_rate"])
        self._energy = float(state["energy"])
        self._figures.set_state(state["figures"])
