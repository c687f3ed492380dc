"""Hyperparameters by scikit-learn, one neighbourhood after another."""

import warnings
from typing import Any

import torch

from replay_buffers.gaussian_process.kernels import NOISE_FLOOR, Hyperparameters, Kernel
from replay_buffers.gaussian_process.regression import Regression

_STEPS = 10


def fit(
    kernel: Kernel, ard: bool, start: Hyperparameters, data: Regression, steps: int = _STEPS
) -> Hyperparameters:
    """The maximum of each neighbourhood's marginal likelihood within `steps` of L-BFGS.

    Args:
        kernel: with a zero mean and a single factor: scikit-learn has no other.
        ard: a lengthscale for each feature (not for "rq").
        start: values to start from, which also give all shapes.
        data: in the process's units.
        steps: iterations.
    """
    values = [t.clone() for t in (start.lengthscale, start.outputscale, start.noise, start.alpha)]
    lengthscale, outputscale, noise, alpha = values
    groups, outputs = start.noise.shape
    x, y = data.x.cpu().double().numpy(), data.y.cpu().double().numpy()
    mask = None if data.mask is None else data.mask.cpu().numpy()
    for g in range(groups):
        live = slice(None) if mask is None else mask[g]
        for p in range(outputs):
            targets = y[g, live] if outputs == 1 else y[g, live, p]
            begin = (lengthscale[g, p], outputscale[g, p], noise[g, p], alpha[g, p, 0])
            found = _fit_one(kernel, ard, begin, x[g, live], targets, steps)
            lengthscale[g, p], outputscale[g, p], noise[g, p], alpha[g, p] = (
                torch.as_tensor(value) for value in found
            )
    return Hyperparameters(lengthscale, outputscale, noise, alpha)


def _fit_one(
    kernel: Kernel, ard: bool, begin: Any, x: Any, y: Any, steps: int
) -> tuple[Any, float, float, float]:
    """Lengthscale, outputscale, noise and alpha of one process (outputs side by side in y)."""
    from scipy.optimize import minimize
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import (
        RBF,
        ConstantKernel,
        Matern,
        RationalQuadratic,
        WhiteKernel,
    )

    def optimize(objective: Any, theta: Any, bounds: Any) -> tuple[Any, float]:
        found = minimize(
            objective, theta, jac=True, bounds=bounds, method="L-BFGS-B",
            options={"maxiter": steps},
        )  # fmt: skip
        return found.x, found.fun

    scales = begin[0].cpu().numpy() if ard else float(begin[0][0])
    if kernel.kind == "rbf":
        base = RBF(scales)
    elif kernel.kind == "rq":
        base = RationalQuadratic(scales, alpha=float(begin[3]))
    else:
        base = Matern(scales, nu=kernel.nu)
    whole = ConstantKernel(float(begin[1])) * base + WhiteKernel(
        max(float(begin[2]), NOISE_FLOOR), (NOISE_FLOOR, 1e5)
    )
    regressor = GaussianProcessRegressor(whole, alpha=0.0, optimizer=optimize)
    with warnings.catch_warnings():
        # A lengthscale at its bound is an answer: the feature doesn't matter.
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = regressor.fit(x, y).kernel_
    base = fitted.k1.k2
    alpha = base.alpha if kernel.kind == "rq" else 1.0
    return base.length_scale, fitted.k1.k1.constant_value, fitted.k2.noise_level, alpha
