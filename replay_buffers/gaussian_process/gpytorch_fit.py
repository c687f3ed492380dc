"""Hyperparameters by gpytorch: the marginal likelihood of many neighbourhoods at once."""

import math
from typing import Any

import torch
from torch import Tensor

from replay_buffers.errors import ReplayError
from replay_buffers.gaussian_process.cholesky import JITTER
from replay_buffers.gaussian_process.kernels import NOISE_FLOOR, Hyperparameters, Kernel
from replay_buffers.gaussian_process.regression import Regression

LEARNING_RATE, EPOCHS = 0.5, 10
_LBFGS_STEPS = 50


class Likelihoods:
    """gpytorch's kernels, means and noise for g neighbourhoods, and their marginal likelihoods.

    Outputs that share their hyperparameters share one factor of their covariance, too: their log
    likelihoods add up.

    Args:
        kernel: which covariance and mean.
        ard: a lengthscale for each feature.
        priors: Gamma priors on lengthscales (3, 6), outputscale (2, 0.15) and noise (1.1, 0.05).
        start: values to start from, which also give all shapes.
    """

    def __init__(self, kernel: Kernel, ard: bool, priors: bool, start: Hyperparameters) -> None:
        import gpytorch

        self._kernel, self._ard, self._like = kernel, ard, start.noise
        groups, outputs, dims = start.lengthscale.shape
        batch = torch.Size([groups, outputs])
        gamma = gpytorch.priors.GammaPrior
        prior = (lambda *parameters: gamma(*parameters)) if priors else (lambda *_: None)
        self._factors = [
            self._base(gpytorch.kernels, part, batch, prior(3.0, 6.0))
            for part in kernel.parts(dims)
        ]
        product = self._factors[0]
        for factor in self._factors[1:]:
            product = product * factor
        self._covariance = gpytorch.kernels.ScaleKernel(
            product, batch_shape=batch, outputscale_prior=prior(2.0, 0.15)
        )
        self._likelihood = gpytorch.likelihoods.GaussianLikelihood(
            noise_prior=prior(1.1, 0.05),
            noise_constraint=gpytorch.constraints.GreaterThan(NOISE_FLOOR),
            batch_shape=batch,
        )
        of_outputs = torch.Size([groups, 1 if start.bias is None else start.bias.shape[1]])
        self._mean = {
            "zero": lambda: gpytorch.means.ZeroMean(of_outputs),
            "constant": lambda: gpytorch.means.ConstantMean(batch_shape=of_outputs),
            "linear": lambda: gpytorch.means.LinearMean(dims, batch_shape=of_outputs),
        }[kernel.mean]()
        self.modules = torch.nn.ModuleList([self._covariance, self._likelihood, self._mean])
        self.modules.to(start.noise.device, start.noise.dtype)
        self.load(start)

    def _base(self, kernels: Any, part: slice, batch: torch.Size, prior: Any) -> Any:
        size = part.stop - part.start
        options = {
            "batch_shape": batch,
            "ard_num_dims": size if self._ard else None,
            "lengthscale_prior": prior,
            "active_dims": tuple(range(part.start, part.stop)),
        }
        if self._kernel.kind == "rbf":
            return kernels.RBFKernel(**options)
        if self._kernel.kind == "rq":
            return kernels.RQKernel(**options)
        return kernels.MaternKernel(nu=self._kernel.nu, **options)

    def load(self, h: Hyperparameters) -> None:
        """Take over values; without ARD, the first lengthscale of each factor."""
        parts = self._kernel.parts(h.lengthscale.shape[-1])
        for number, (factor, part) in enumerate(zip(self._factors, parts, strict=True)):
            of_factor = h.lengthscale[..., None, part]
            factor.lengthscale = of_factor if self._ard else of_factor[..., :1]
            if self._kernel.kind == "rq":
                factor.alpha = h.alpha[..., number, None]
        self._covariance.outputscale = h.outputscale
        # The floor itself lies at minus infinity of what is optimized.
        self._likelihood.noise = h.noise.clamp(min=1.01 * NOISE_FLOOR)[..., None]
        with torch.no_grad():
            if h.bias is not None and h.slope is None:
                self._mean.constant = h.bias
            if h.bias is not None and h.slope is not None:
                self._mean.weights.copy_(h.slope[..., None])
                self._mean.bias.copy_(h.bias[..., None])

    def values(self) -> Hyperparameters:
        """The present values, detached."""
        scales, alphas = [], []
        dims = self._kernel.parts(sum(len(f.active_dims) for f in self._factors))
        for factor, part in zip(self._factors, dims, strict=True):
            size = part.stop - part.start
            scales.append(factor.lengthscale[..., 0, :].expand(-1, -1, size))
            rq = self._kernel.kind == "rq"
            alphas.append(factor.alpha[..., 0] if rq else torch.ones_like(self._like))
        bias = slope = None
        if self._kernel.mean == "constant":
            bias = self._mean.constant.detach().clone()
        if self._kernel.mean == "linear":
            bias = self._mean.bias[..., 0].detach().clone()
            slope = self._mean.weights[..., 0].detach().clone()
        return Hyperparameters(
            torch.cat(scales, -1).detach().clone(),
            self._covariance.outputscale.detach().clone(),
            self._likelihood.noise[..., 0].detach().clone(),
            torch.stack(alphas, -1).detach().clone(),
            bias,
            slope,
        )

    def log_likelihood(self, data: Regression) -> Tensor:
        """`[g]`, log p(y | x) of all outputs together, for data in the process's units."""
        x, residual = data.x[:, None], data.y.mT - self._mean(data.x[:, None])
        matrices = self._covariance(x).to_dense()  # [g, p, m, m]
        eye = torch.eye(x.shape[-2], dtype=x.dtype, device=x.device)
        matrices = matrices + self._likelihood.noise[..., None] * eye
        count = torch.full_like(residual[:, 0, 0], x.shape[-2])
        if data.mask is not None:
            live = data.mask[:, None]
            both = live[..., :, None] & live[..., None, :]
            matrices = torch.where(both, matrices, eye)
            residual = residual * live
            count = data.mask.sum(1).to(x.dtype)
        lower = _cholesky(matrices)
        outputs, sharing = residual.shape[1], residual.shape[1] // matrices.shape[1]
        right = residual.mT[:, None] if matrices.shape[1] == 1 else residual[..., None]
        solved = torch.linalg.solve_triangular(lower, right, upper=False)
        quadratic = (solved * solved).flatten(1).sum(1)
        log_determinant = 2 * lower.diagonal(dim1=-2, dim2=-1).log().sum((1, 2)) * sharing
        return -0.5 * (quadratic + log_determinant + outputs * count * math.log(2 * math.pi))

    def log_prior(self) -> Tensor:
        """The log density of the hyperparameters under their priors, 0 without any."""
        total = self._like.new_zeros(())
        for part in (self._covariance, self._likelihood):
            for _, module, prior, closure, _ in part.named_priors():
                total = total + prior.log_prob(closure(module)).sum()
        return total


def _cholesky(matrices: Tensor) -> Tensor:
    """Factors, with as much jitter as each of the matrices needs (NaN where none helps)."""
    lower, info = torch.linalg.cholesky_ex(matrices)
    if not info.any():
        return lower
    eye = torch.eye(matrices.shape[-1], dtype=matrices.dtype, device=matrices.device)
    scale = matrices.detach().diagonal(dim1=-2, dim2=-1).mean(-1)
    added = torch.zeros_like(scale)
    for jitter in JITTER:
        added = torch.where(info > 0, jitter * scale, added)
        lower, info = torch.linalg.cholesky_ex(matrices + added[..., None, None] * eye)
        if not info.any():
            return lower
    return torch.where((info > 0)[..., None, None], torch.nan * eye, lower)


def maximize(
    model: Likelihoods, data: Regression, *, epochs: int = EPOCHS, lbfgs: bool = False
) -> None:
    """Raise the likelihood (times the prior) of each neighbourhood, all of them in one pass.

    Args:
        model: changed in place.
        data: in the process's units.
        epochs: steps of Adam with learning rate 0.5.
        lbfgs: botorch's L-BFGS in their place.
    """
    parameters = {name: p for name, p in model.modules.named_parameters() if p.requires_grad}

    def loss() -> Tensor:
        found = model.log_likelihood(data).nan_to_num(nan=0.0)
        return -(found.sum() + model.log_prior()) / data.x.shape[1]

    def step() -> tuple[Tensor, list[Tensor]]:
        """The loss and its gradients."""
        for parameter in parameters.values():
            parameter.grad = None
        value = loss()
        value.backward()
        gradients = [p.grad for p in parameters.values() if p.grad is not None]
        for gradient in gradients:
            # A neighbourhood that can't be factored keeps its values and holds up no other.
            gradient.nan_to_num_(nan=0.0)
        return value, gradients

    if lbfgs:
        minimize = require_botorch()
        minimize(closure=step, parameters=parameters, options={"maxiter": _LBFGS_STEPS})
        return
    optimizer = torch.optim.Adam(parameters.values(), lr=LEARNING_RATE)
    for _ in range(epochs):
        step()
        optimizer.step()


def require_botorch() -> Any:
    """botorch's L-BFGS, or how to get it.

    Raises:
        ReplayError: botorch is not installed.
    """
    try:
        from botorch.optim.core import scipy_minimize
    except ImportError as error:
        raise ReplayError(
            "--use_botorch needs botorch: run pip install -e '.[botorch]', or drop the flag"
        ) from error
    return scipy_minimize
