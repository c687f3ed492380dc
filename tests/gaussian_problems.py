"""Small regression problems, and the same answers from gpytorch, one exact GP at a time."""

import gpytorch
import numpy as np
import torch

from replay_buffers.gaussian_process.kernels import Hyperparameters
from replay_buffers.gaussian_process.regression import Normalization, Regression

G, M, D, P, Q, STATE = 3, 12, 5, 4, 7, 3
KERNELS = [("rbf", 2.5), ("rq", 2.5), ("matern", 0.5), ("matern", 1.5), ("matern", 2.5)]
AS_IS = Normalization()


def problem(seed=0, rows=M, dtype=torch.float64):
    """Smooth functions with noise, on features of different sizes."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(G, rows, D)) * [1.0, 2.0, 0.5, 1.0, 3.0] + 4.0
    y = np.sin(x @ rng.normal(size=(D, P)) * 0.4) + 0.1 * rng.normal(size=(G, rows, P))
    queries = x[:, rng.integers(rows, size=Q)] + 0.2 * rng.normal(size=(G, Q, D))
    data = Regression(torch.tensor(x, dtype=dtype), torch.tensor(y, dtype=dtype))
    return data, torch.tensor(queries, dtype=dtype)


def hyperparameters(kernel, ard, outputs=1, groups=G, seed=1):
    """Random ones; without ARD the lengthscales of a factor are equal."""
    rng = np.random.default_rng(seed)
    lengthscale = rng.uniform(0.8, 3.0, (groups, outputs, D))
    if not ard:
        for part in kernel.parts(D):
            lengthscale[..., part] = lengthscale[..., part][..., :1]

    def draw(*shape, low=0.5, high=2.0):
        return torch.tensor(rng.uniform(low, high, shape))

    return Hyperparameters(
        torch.tensor(lengthscale),
        draw(groups, outputs),
        draw(groups, outputs, low=0.01, high=0.1),
        draw(groups, outputs, len(kernel.parts(D))),
        draw(groups, P, low=-1, high=1) if kernel.mean != "zero" else None,
        draw(groups, P, D, low=-0.3, high=0.3) if kernel.mean == "linear" else None,
    )


def gpytorch_kernel(kernel, h, group, p, ard):
    """gpytorch's own kernel of one neighbourhood and output."""
    product = None
    for factor, part in enumerate(kernel.parts(D)):
        dims = tuple(range(D))[part]
        options = {"active_dims": dims, "ard_num_dims": len(dims) if ard else None}
        if kernel.kind == "rbf":
            base = gpytorch.kernels.RBFKernel(**options)
        elif kernel.kind == "rq":
            base = gpytorch.kernels.RQKernel(**options)
        else:
            base = gpytorch.kernels.MaternKernel(nu=kernel.nu, **options)
        base = base.double()
        scales = h.lengthscale[group, p, part]
        base.lengthscale = scales if ard else scales[0]
        if kernel.kind == "rq":
            base.alpha = h.alpha[group, p, factor]
        product = base if product is None else product * base
    scaled = gpytorch.kernels.ScaleKernel(product).double()
    scaled.outputscale = h.outputscale[group, p]
    return scaled


def gpytorch_mean(kernel, h, group, output):
    if kernel.mean == "zero":
        return gpytorch.means.ZeroMean()
    if kernel.mean == "constant":
        mean = gpytorch.means.ConstantMean().double()
        mean.constant = h.bias[group, output]
        return mean
    mean = gpytorch.means.LinearMean(D).double()
    mean.weights.data = h.slope[group, output][:, None]
    mean.bias.data = h.bias[group, output][None]
    return mean


class ExactGP(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood, mean_module, covar_module):
        super().__init__(x, y, likelihood)
        self.mean_module, self.covar_module = mean_module, covar_module

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def gpytorch_posterior(kernel, h, data, queries, ard):
    """Means and variances `[G, q, P]`, one exact GP for each neighbourhood and output."""
    means, variances = np.empty((2, G, queries.shape[1], P))
    for group in range(G):
        for output in range(P):
            p = min(output, h.outputs - 1)
            g = min(group, h.groups - 1)
            likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
            likelihood.noise = h.noise[g, p]
            model = ExactGP(
                data.x[group],
                data.y[group, :, output],
                likelihood,
                gpytorch_mean(kernel, h, g, output),
                gpytorch_kernel(kernel, h, g, p, ard),
            )
            model.eval()
            with torch.no_grad(), gpytorch.settings.fast_computations(False, False, False):
                latent = model(queries[group])
            means[group, :, output] = latent.mean
            variances[group, :, output] = latent.variance
    return means, variances
