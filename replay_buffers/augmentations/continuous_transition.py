"""Continuous Transition: mixtures of successive steps, as bold as an energy model allows."""

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from replay_buffers.augmentations.base import Context, Plain, Sample
from replay_buffers.augmentations.mixture import MixtureFigures, mix, mixable
from replay_buffers.errors import ReplayError
from replay_buffers.storage import REWARDS, Bools, Floats, Schema

_LEAST, _MOST = 1e-6, 1.0


class AdaptiveMixture(Plain):
    """Mixes a step with the next one of its episode, lam ~ Beta(b, b) with b learned.

    Lin et al. 2021 (arXiv 2011.14487). An energy model D(s, a) -> (s', r), two hidden layers of
    256, learns by mean squared error on the real rows of every batch. The energy of a mixture is
    the mean squared difference between D at the mixed (s, a) and the same mixture of D's two
    outputs: 0 where the dynamics are linear. b follows the gradient of log(b) (energy - tolerance),
    so it falls where mixtures lie off the manifold and rises to 1 where they don't. `terminated` is
    mixed as a float, too; the last step of an episode has no partner and passes as it is.

    Args:
        schema: of the rows.
        seed: of the model's initial weights.
        use_delta: see `mix`.
        fixed: keep b at this value and learn nothing (what the old code did).
        tolerance: the energy that is still acceptable.
        learning_rate: of model and b, until `attach` brings the critic's.
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
        self._outputs = slice(schema.column(REWARDS).start, schema.width - 2)  # reward, new_obs
        self._features = schema.features
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            inputs = schema.obs_dim + schema.action_dim
            self._model = nn.Sequential(
                *(nn.Linear(inputs, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU()),
                nn.Linear(256, schema.obs_dim + 1),
            )
        self._b = nn.Parameter(torch.tensor(1.0 if fixed is None else fixed))
        self._optimize(learning_rate)
        self._figures = MixtureFigures()
        self._energy = 0.0

    def _optimize(self, learning_rate: float) -> None:
        parameters = [*self._model.parameters()]
        self._model_optimizer = torch.optim.Adam(parameters, lr=learning_rate)
        self._b_optimizer = torch.optim.Adam([self._b], lr=learning_rate)

    def attach(self, context: Context) -> None:
        self._optimize(context.learning_rate)

    @property
    def b(self) -> float:
        """The parameter of Beta(b, b)."""
        return float(self._b.detach())

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
            self._learn(real, partners, sample.rows, lam, mixed)

    def _learn(
        self, real: Floats, partners: Floats, mixture: Floats, lam: Floats, mixed: Bools
    ) -> None:
        rows = torch.from_numpy(np.concatenate([real, partners[mixed]]))
        loss = nn.functional.mse_loss(self._model(rows[:, self._features]), rows[:, self._outputs])
        self._model_optimizer.zero_grad()
        loss.backward()
        self._model_optimizer.step()

        energy = self.energy(real[mixed], partners[mixed], mixture[mixed], lam[mixed])
        self._b_optimizer.zero_grad()
        (self._b.log() * (energy - self._tolerance)).mean().backward()
        self._b_optimizer.step()
        with torch.no_grad():
            self._b.clamp_(_LEAST, _MOST)
        self._energy = float(energy.mean())

    @torch.no_grad()
    def energy(self, x: Floats, y: Floats, mixture: Floats, lam: Floats) -> Tensor:
        """How far each mixture of rows x and y is from what the model makes of it, `[n]`."""
        of_x, of_y, of_mixture = (
            self._model(torch.from_numpy(rows[:, self._features])) for rows in (x, y, mixture)
        )
        linear = of_y + torch.from_numpy(lam)[:, None] * (of_x - of_y)
        return ((of_mixture - linear) ** 2).mean(-1)

    def stats(self) -> dict[str, float]:
        """b, the last energy, the fraction mixed and its mean lam."""
        return {"ct_b": self.b, "ct_energy": self._energy, **self._figures.report()}

    def get_state(self) -> dict[str, Any]:
        """Model, b, both optimizers, and the figures so far."""
        return {
            "model": {k: v.numpy().copy() for k, v in self._model.state_dict().items()},
            "b": self.b,
            "energy": self._energy,
            "figures": self._figures.get_state(),
            # A state_dict lends its tensors, which the next step would change.
            "model_optimizer": copy.deepcopy(self._model_optimizer.state_dict()),
            "b_optimizer": copy.deepcopy(self._b_optimizer.state_dict()),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        weights = {k: torch.from_numpy(np.array(v)) for k, v in state["model"].items()}
        self._model.load_state_dict(weights)
        with torch.no_grad():
            self._b.fill_(state["b"])
        self._energy = float(state["energy"])
        self._figures.set_state(state["figures"])
        self._model_optimizer.load_state_dict(copy.deepcopy(state["model_optimizer"]))
        self._b_optimizer.load_state_dict(copy.deepcopy(state["b_optimizer"]))
