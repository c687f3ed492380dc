"""S4RL: the same transition seen through slightly different states (arXiv 2103.06326)."""

from collections.abc import Callable

import numpy as np

from replay_buffers.augmentations.base import Context, Plain, Sample
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
VIEWS = (*_ALIKE, "adversarial", "mixup")
_ADVERSARIAL_STEP = 1e-4


class StateViews(Plain):
    """Gives `views` views of each sampled row; the learner averages over a row's views.

    Five views change obs and new_obs by independent draws of the same kind. "adversarial" moves
    obs by 1e-4 times the sign of the gradient that raises Q(s, pi(s)). "mixup" (the default, as in
    the NMER comparison) replaces obs by lam obs + (1 - lam) new_obs, lam ~ Beta(alpha, alpha), and
    leaves everything else alone.

    Args:
        view: one of `VIEWS`.
        views: how many of each row; the sample's rows become `[views * n]`, contiguous by view.
        alpha: of the mixup view.

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

    def attach(self, context: Context) -> None:
        if self._view == "adversarial" and context.obs_gradient is None:
            raise ReplayError(
                "the adversarial view asks the critic for gradients, which needs the learner in "
                "this process; set num_learners to 0 or choose another --s4rl_view"
            )
        self._context = context

    def __call__(self, sample: Sample, rng: Generator) -> None:
        if self.views > 1:
            sample.rows = np.tile(sample.rows, (self.views, 1))
            sample.weights = np.tile(sample.weights, self.views)
            if sample.steps is not None:
                sample.steps = np.tile(sample.steps, self.views)
        obs = sample.rows[:, sample.schema.column(OBS)]
        new_obs = sample.rows[:, sample.schema.column(NEXT_OBS)]
        if self._view == "mixup":
            lam = rng.beta(self._alpha, self._alpha, (len(obs), 1)).astype(np.float32)
            obs[:] = new_obs + lam * (obs - new_obs)
        elif self._view == "adversarial":
            if self._context is None or self._context.obs_gradient is None:
                raise ReplayError("the adversarial view has no learner to ask; call attach first")
            gradient = self._context.obs_gradient(obs.copy())
            obs += np.float32(_ADVERSARIAL_STEP) * np.sign(gradient)
        else:
            change = _ALIKE[self._view]
            obs[:] = change(obs, rng)
            new_obs[:] = change(new_obs, rng)
