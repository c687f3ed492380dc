"""Hyperparameters of neighbourhoods: fitted by gpytorch or scikit-learn, or estimated."""

from dataclasses import replace

import torch
from torch import Tensor

from replay_buffers.gaussian_process import gpytorch_fit, sklearn_fit
from replay_buffers.gaussian_process.kernels import (
    NOISE_FLOOR,
    Hyperparameters,
    Kernel,
    concatenate,
)
from replay_buffers.gaussian_process.regression import Normalization, Regression
from replay_buffers.gaussian_process.settings import GaussianProcessSettings

# Elements of the covariances fitted together; autograd keeps about ten arrays of this size.
_AT_ONCE = 2_000_000
# Noise of an estimate, as a part of the targets' variance.
_NOISE_RATIO = 1e-2


class Fitter:
    """Finds the hyperparameters of each neighbourhood, as the settings say.

    Args:
        kernel: covariance and mean.
        normalization: the units that hyperparameters are meant for.
        settings: which method.
    """

    def __init__(
        self, kernel: Kernel, normalization: Normalization, settings: GaussianProcessSettings
    ) -> None:
        self._kernel, self._normalization, self._settings = kernel, normalization, settings
        if settings.use_botorch:
            gpytorch_fit.require_botorch()

    def __call__(
        self, data: Regression, start: Hyperparameters | None = None, epochs: int | None = None
    ) -> Hyperparameters:
        """Of each of the G neighbourhoods.

        Args:
            data: the neighbourhoods, in their own units.
            start: values to begin with; gpytorch's defaults otherwise.
            epochs: steps of Adam (of L-BFGS for scikit-learn), 10 when None.
        """
        begin = self.start(data) if start is None else start
        rows = data.x.shape[1]
        size = max(1, _AT_ONCE // (begin.outputs * rows * rows))
        parts = []
        for first in range(0, len(data), size):
            chunk = slice(first, first + size)
            some, own = self._in_units(data.of(chunk)), begin.of(chunk)
            if own.groups == 1:
                own = own.expand(len(some))
            parts.append(self._fit(some, own, epochs))
        return concatenate(parts)

    def start(self, data: Regression) -> Hyperparameters:
        """gpytorch's defaults, for one neighbourhood of this kind."""
        all_outputs = data.y.shape[2]
        outputs = all_outputs if self._settings.per_output_hyperparams else 1
        like = self._in_units(data.of(slice(0, 1))).x
        return Hyperparameters.start(self._kernel, 1, outputs, all_outputs, like)

    def _in_units(self, data: Regression) -> Regression:
        units = self._normalization.units(data)
        return replace(data, x=units.features(data.x), y=units.targets(data.y))

    def _fit(self, data: Regression, start: Hyperparameters, epochs: int | None) -> Hyperparameters:
        settings = self._settings
        if settings.est_lengthscales:
            return self._estimate(data, start)
        if not settings.gpytorch:
            steps = {} if epochs is None else {"steps": epochs}
            found = sklearn_fit.fit(self._kernel, settings.use_ard, start, data, **steps)
        else:
            model = gpytorch_fit.Likelihoods(
                self._kernel, settings.use_ard, settings.use_priors, start
            )
            steps = {} if epochs is None else {"epochs": epochs}
            gpytorch_fit.maximize(model, data, lbfgs=settings.use_botorch, **steps)
            found = model.values()
        sound = found.pack().isfinite().all(1)
        return start.unpack(torch.where(sound[:, None], found.pack(), start.pack()))

    def _estimate(self, data: Regression, start: Hyperparameters) -> Hyperparameters:
        """Lengthscales from the neighbourhood's radius, variances from its targets; no fit."""
        radius = (data.x - data.x[:, :1]).abs().amax(1)  # [G, D]
        radius = torch.where(radius > 0, radius, torch.ones_like(radius))
        lengthscale = self._settings.est_lengthscale_constant * radius
        if not self._settings.use_ard:
            for part in self._kernel.parts(lengthscale.shape[1]):
                lengthscale[:, part] = lengthscale[:, part].mean(1, keepdim=True)
        variance = self._variance(data, start.outputs)
        return replace(
            start,
            lengthscale=lengthscale[:, None].expand_as(start.lengthscale).clone(),
            outputscale=variance,
            noise=(_NOISE_RATIO * variance).clamp_(min=NOISE_FLOOR),
            alpha=torch.ones_like(start.alpha),
        )

    def _variance(self, data: Regression, outputs: int) -> Tensor:
        """`[G, p]`, of the targets, averaged over outputs that share it; 1 where it is 0."""
        variance = data.deviation(data.y - data.average(data.y))[:, 0] ** 2
        if outputs == 1:
            variance = variance.mean(1, keepdim=True)
        return torch.where(variance > 0, variance, torch.ones_like(variance))
