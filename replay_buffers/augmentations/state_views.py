"""S4RL: the same transition seen through slightly different states (arXiv 2103.06326)."""

from collections.abc import Callable
from typing import Any

import numpy as np

from replay_buffers.augmentations.base import Context, Plain, Sample
from replay_buffers.augmentations.mixture import MixtureFigures, away_from_ends
from replay_buffers.errors import ReplayError
from replay_buffers.storage import NEXT_OBS, OBS, Floats

Generator = np.random.Generator


def gaussian(obs: Floats, rng: Generator) -> Floats:
    """Adds N(0, 3e-4)."""
    return obs + np.float32(3e-4) * rng.standard_normal(obs.shape, np.float32)


def uniform(obs: Floats, rng: Generator) -> Floats:
    """Adds U(-3e-4, 3e-4)."""
    return obs + np.float32(3e-4) * (2 * rng.random(obs.shape, np.float32) - 1)


def amplitude(obs: Floats, rng: Generator) -> Floats:
    """Scales each dimension of each row by U(0.8, 1.2)."""
    return obs * (np.float32(0.8) + np.float32(0.4) * rng.random(obs.shape, np.float32))


def dropout(obs: Floats, rng: Generator) -> Floats:
    """Sets each dimension of each row to 0 with probability 0.1."""
    return obs * (rng.random(obs.shape) >= 0.1).astype(np.float32)


def switch(obs: Floats, rng: Generator) -> Floats:
    """Swaps two random dimensions of each row."""
    switched = obs.copy()
    count, dims = obs.shape
    if dims < 2:
        return switched
    first = rng.integers(dims, size=count)
    second = rng.integers(dims - 1, size=count)
    second += second >= first
    rows = np.arange(count)
    switched[rows, first], switched[rows, second] = obs[rows, second], obs[rows, first]
    return switched


# Views that treat obs and new_obs alike, each with draws of its own.
_ALIKE: dict[str, Callable[[Floats, Generator], Floats]] = {
    "gaussian": gaussian,
    "uniform": uniform,
    "amplitude": amplitude,
    "dropout": dropout,
    "switch": switch,
}
VIEWS = (*_ALIKE, "adversarial", "mixup", "mixup_obs")
_ADVERSARIAL_STEP = 1e-4


class StateViews(Plain):
    """Gives `views` views of each sampled row; the learner averages over a row's views.

    Five views change obs and new_obs by independent draws of the same kind. "adversarial" moves
    obs by 1e-4 times the sign of the gradient that raises Q(s, pi(s)).

    "mixup" (the default, the paper's) mixes each of a transition's two states with its own
    successor, one lam ~ Beta(alpha, alpha) per row:

        obs := lam s_t + (1 - lam) s_t+1        new_obs := lam s_t+1 + (1 - lam) s_t+2

    The partner is the next row of the episode; its obs and new_obs are those successors, under
    n-step returns as well (s_t+n with s_t+n+1) as long as both rows look equally far. A row passes
    unmixed where an episode ends (no next row, or one whose new_obs is terminal or that looks less
    far), where the next row is not stored yet, and where it has been overwritten.

    "mixup_obs" (what the NMER comparison ran) replaces obs by lam obs + (1 - lam) new_obs and
    leaves new_obs alone, so the critic learns from transitions that move by lam of a step.

    Args:
        view: one of `VIEWS`.
        views: how many of each row; the sample's rows become `[views * n]`, contiguous by view.
        alpha: of the two mixup views.

    Raises:
        ReplayError: an unknown view, fewer than one, or "adversarial" without a learner to ask.
    """

    def __init__(self, view: str = "mixup", views: int = 1, alpha: float = 0.4) -> None:
        if view not in VIEWS:
            raise ReplayError(f"--s4rl_view is {view!r}; choose one of {', '.join(VIEWS)}")
        if views < 1:
            raise ReplayError(f"--s4rl_num_views is {views}; it must be 1 or more")
        self.views = views
        self.sequential = view == "adversarial" or views > 1
        self._view, self._alpha = view, alpha
        self._context: Context | None = None
        self._figures = MixtureFigures()

    def attach(self, context: Context) -> None:
        if self._view == "adversarial" and context.obs_gradient is None:
            raise ReplayError(
                "the adversarial view asks the critic for gradients, which needs the learner in "
                "this process; set num_learners to 0 or choose another --s4rl_view"
            )
        self._context = context

    def __call__(self, sample: Sample, rng: Generator) -> None:
        if self.views > 1:
            _repeat(sample, self.views)
        obs = sample.rows[:, sample.schema.column(OBS)]
        new_obs = sample.rows[:, sample.schema.column(NEXT_OBS)]
        if self._view == "mixup":
            self._mix(sample, self._lam(len(obs), rng))
        elif self._view == "mixup_obs":
            obs[:] = new_obs + self._lam(len(obs), rng) * (obs - new_obs)
        elif self._view == "adversarial":
            if self._context is None or self._context.obs_gradient is None:
                raise ReplayError("the adversarial view has no learner to ask; call attach first")
            gradient = self._context.obs_gradient(obs.copy())
            obs += np.float32(_ADVERSARIAL_STEP) * np.sign(gradient)
        else:
            change = _ALIKE[self._view]
            obs[:] = change(obs, rng)
            new_obs[:] = change(new_obs, rng)

    def _lam(self, count: int, rng: Generator) -> Floats:
        """`[count, 1]` shares of the earlier state."""
        return rng.beta(self._alpha, self._alpha, (count, 1)).astype(np.float32)

    def _mix(self, sample: Sample, lam: Floats) -> None:
        """Both states with their successors, where there are any."""
        mixed = away_from_ends(sample)
        assert sample.partners is not None  # away_from_ends has checked it
        share = lam[mixed]
        for name in (OBS, NEXT_OBS):
            column = sample.schema.column(name)
            earlier, later = sample.rows[mixed, column], sample.partners[mixed, column]
            sample.rows[mixed, column] = later + share * (earlier - later)
        self._figures.count(lam[:, 0], mixed)

    def stats(self) -> dict[str, float]:
        """Fraction of rows mixed and mean lam of those since the last call, of the view mixup."""
        return self._figures.report() if self._view == "mixup" else {}

    def get_state(self) -> dict[str, Any]:
        return {"figures": self._figures.get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        self._figures.set_state(state["figures"])


def _repeat(sample: Sample, views: int) -> None:
    """Give the sample `views` copies of each of its rows, contiguous by view."""
    for name in ("rows", "weights", "steps", "partners", "partnered", "partner_steps"):
        values = getattr(sample, name)
        if values is not None:
            copies = (views, *[1] * (values.ndim - 1))
            setattr(sample, name, np.tile(values, copies))
