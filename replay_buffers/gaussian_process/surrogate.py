"""The Gaussian processes of a replay buffer: which hyperparameters, since when, and predictions."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from replay_buffers.gaussian_process.fitting import Fitter
from replay_buffers.gaussian_process.kernels import Hyperparameters, Kernel
from replay_buffers.gaussian_process.neighborhoods import Neighborhoods
from replay_buffers.gaussian_process.posterior import Conditioned, LocalProcesses, Prediction
from replay_buffers.gaussian_process.regression import Normalization, Regression
from replay_buffers.gaussian_process.settings import GaussianProcessSettings

# A fit that takes longer than this many seconds says so each time, not only the first.
_LONG = 2.0


def kernel_of(settings: GaussianProcessSettings, obs_dim: int) -> Kernel:
    split = obs_dim if settings.composite_kernel else None
    return Kernel(settings.kernel, settings.matern_nu, split, settings.mean_type)


def normalization_of(settings: GaussianProcessSettings) -> Normalization:
    components = settings.gp_pca_components if settings.gp_pca else None
    return Normalization(settings.normalize, settings.standardize_gpr_x, components)


class Surrogate:
    """Predicts (reward, new_obs) from a row's neighbourhood, or from one model of the whole buffer.

    Args:
        settings: see there.
        rows: where neighbourhoods come from.
    """

    def __init__(self, settings: GaussianProcessSettings, rows: Neighborhoods) -> None:
        kernel = kernel_of(settings, rows.schema.obs_dim)
        normalization = normalization_of(settings)
        self._settings, self._rows = settings, rows
        self.processes = LocalProcesses(kernel, normalization)
        self.fit = Fitter(kernel, normalization, settings)
        self.shared = settings.global_hyperparams or settings.single_model
        self.version = 0  # counts the fits of shared hyperparameters
        self.say: Callable[[str], None] = lambda line: None
        self._h: Hyperparameters | None = None
        self._next_fit = 0
        self._model: tuple[Regression, Conditioned] | None = None
        self._fits, self._fit_seconds, self._longest = 0, 0.0, 0.0

    def refit(self, added: int, rng: np.random.Generator) -> None:
        """Fit shared hyperparameters anew, if they are due after `added` rows in all."""
        if not self.shared or (self._h is not None and added < self._next_fit):
            return
        first, started = self._h is None, time.perf_counter()
        if self._settings.mc_hyper:
            data = self._rows.regression(*self._rows.draw(self._settings.fit_batch, rng))
            on = f"{len(data)} neighbourhoods of {data.x.shape[1]} rows"
        else:
            data = self._rows.anywhere(self._settings.train_size, rng)
            on = f"{data.x.shape[1]} rows"
        if first:
            self.say(f"fitting the Gaussian process's hyperparameters on {on}")
        start = self._h if self._settings.warmstart_global else None
        self._h = self.fit(data, start).average()
        self._next_fit = added + self._settings.retrain_interval
        self.version += 1
        if self._settings.single_model:
            self._hold(data)
        seconds = time.perf_counter() - started
        self._fits += 1
        self._fit_seconds += seconds
        self._longest = max(self._longest, seconds)
        if first or seconds > _LONG:
            again = f"again after every {self._settings.retrain_interval:,} env steps"
            self.say(f"fitted the hyperparameters on {on} in {seconds:.1f} s, {again}")

    def _hold(self, data: Regression) -> None:
        assert self._h is not None
        spread = self._settings.sample_gp_cov
        self._model = (data, self.processes.condition(self._h, data, spread))

    def predict(
        self,
        data: Regression | None,
        queries: Tensor,
        h: Hyperparameters | None = None,
        *,
        variance: bool = False,
        spread: bool = False,
    ) -> Prediction:
        """At queries `[G, q, D]` of neighbourhoods `data`.

        Args:
            data: the neighbourhoods; None for a single model, whose queries are `[1, q, D]`.
            queries: in the rows' own units.
            h: hyperparameters of these neighbourhoods; the shared ones, or a fit, otherwise.
            variance, spread: see `LocalProcesses.predict`.
        """
        if self._model is not None:
            return self._model[1].predict(queries, variance)
        assert data is not None
        if h is None:
            h = self.hyperparameters(data)
        return self.processes.predict(h, data, queries, variance=variance, spread=spread)

    def hyperparameters(self, data: Regression) -> Hyperparameters:
        """The shared ones, or a fit of these neighbourhoods."""
        if not self.shared:
            return self.fit(data)
        assert self._h is not None
        return self._h

    def start(self, data: Regression) -> Hyperparameters:
        """Where a fit of one of these neighbourhoods begins."""
        return self.fit.start(data)

    def stats(self) -> dict[str, float]:
        """Fits and what they took since the last call; the shared hyperparameters."""
        figures: dict[str, float] = {}
        if self.shared:
            figures = {"gp_fits": self._fits, "gp_fit_seconds": self._fit_seconds}
            figures["gp_longest_fit_seconds"] = self._longest
            self._fits, self._fit_seconds, self._longest = 0, 0.0, 0.0
        if self._h is not None:
            figures["gp_mean_lengthscale"] = float(self._h.lengthscale.mean())
            figures["gp_outputscale"] = float(self._h.outputscale.mean())
            figures["gp_noise"] = float(self._h.noise.mean())
        return figures

    def get_state(self) -> dict[str, Any]:
        """Shared hyperparameters, when they are due, and the single model's rows."""
        model = None if self._model is None else self._model[0]
        return {
            "hyperparameters": None if self._h is None else self._h.get_state(),
            "next_fit": self._next_fit,
            "version": self.version,
            "fits": (self._fits, self._fit_seconds, self._longest),
            "x": None if model is None else model.x.cpu().numpy().copy(),
            "y": None if model is None else model.y.cpu().numpy().copy(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        h = state["hyperparameters"]
        self._h = None if h is None else Hyperparameters.from_state(h, self._rows.device)
        self._next_fit, self.version = int(state["next_fit"]), int(state["version"])
        self._fits, self._fit_seconds, self._longest = state["fits"]
        self._model = None
        if state["x"] is not None:
            x, y = (torch.from_numpy(np.array(state[name])).to(self._rows.device) for name in "xy")
            self._hold(Regression(x, y))
