"""Hyperparameters: gpytorch's and scikit-learn's own training loops are the reference."""

import gpytorch
import numpy as np
import pytest
import torch
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    Matern,
    RationalQuadratic,
    WhiteKernel,
)

from replay_buffers.errors import ReplayError
from replay_buffers.gaussian_process.fitting import Fitter
from replay_buffers.gaussian_process.gpytorch_fit import Likelihoods
from replay_buffers.gaussian_process.kernels import Hyperparameters, Kernel
from replay_buffers.gaussian_process.regression import Normalization, Regression
from replay_buffers.gaussian_process.settings import GaussianProcessSettings, check
from tests.gaussian_problems import (
    AS_IS,
    KERNELS,
    STATE,
    D,
    ExactGP,
    G,
    M,
    P,
    gpytorch_kernel,
    gpytorch_mean,
    hyperparameters,
    problem,
)


def fitter(kernel, normalization=AS_IS, **settings):
    return Fitter(kernel, normalization, GaussianProcessSettings(kernel=kernel.kind, **settings))


def gpytorch_log_likelihood(kernel, h, data, group, ard):
    """gpytorch's own, summed over outputs."""
    total = 0.0
    for output in range(P):
        p = min(output, h.outputs - 1)
        likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
        likelihood.noise = h.noise[group, p]
        x, y = data.x[group], data.y[group, :, output]
        model = ExactGP(
            x,
            y,
            likelihood,
            gpytorch_mean(kernel, h, group, output),
            gpytorch_kernel(kernel, h, group, p, ard),
        )
        mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
        with gpytorch.settings.fast_computations(False, False, False):
            total += mll(model(x), y).item() * len(x)
    return total


@pytest.mark.parametrize("mean", ["zero", "constant", "linear"])
@pytest.mark.parametrize("outputs", [1, P])
@pytest.mark.parametrize("split", [None, STATE])
def test_the_likelihood_that_is_maximized_is_gpytorchs(mean, outputs, split):
    kernel = Kernel("rq", split=split, mean=mean)
    data, _ = problem(12)
    h = hyperparameters(kernel, True, outputs)
    found = Likelihoods(kernel, True, False, h).log_likelihood(data).detach()
    for group in range(G):
        expected = gpytorch_log_likelihood(kernel, h, data, group, True)
        assert float(found[group]) == pytest.approx(expected, rel=1e-9)
    mask = torch.ones(G, M, dtype=torch.bool)
    mask[:, 4] = False
    kept = [row for row in range(M) if row != 4]
    without = Likelihoods(kernel, True, False, h).log_likelihood(Regression(data.x, data.y, mask))
    fewer = Likelihoods(kernel, True, False, h).log_likelihood(
        Regression(data.x[:, kept], data.y[:, kept])
    )
    np.testing.assert_allclose(without.detach(), fewer.detach(), rtol=1e-9)


@pytest.mark.parametrize(("kind", "nu"), KERNELS)
def test_a_fit_takes_ten_steps_of_adam_as_gpytorch_would(kind, nu):
    """One neighbourhood and one output, against gpytorch's plain training loop."""
    kernel = Kernel(kind, nu)
    whole, _ = problem(13)
    data = Regression(whole.x, whole.y[..., :1])
    found = fitter(kernel, gpytorch=True, use_ard=True)(data)
    start = Hyperparameters.start(kernel, G, 1, 1, data.x)
    for group in range(G):
        likelihood = gpytorch.likelihoods.GaussianLikelihood(
            noise_constraint=gpytorch.constraints.GreaterThan(1e-3)
        ).double()
        likelihood.noise = start.noise[group, 0]
        x, y = data.x[group], data.y[group, :, 0]
        model = ExactGP(
            x,
            y,
            likelihood,
            gpytorch.means.ZeroMean(),
            gpytorch_kernel(kernel, start, group, 0, True),
        )
        mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.5)
        for _ in range(10):
            optimizer.zero_grad()
            (-mll(model(x), y)).backward()
            optimizer.step()
        base = model.covar_module.base_kernel
        np.testing.assert_allclose(
            found.lengthscale[group, 0], base.lengthscale.detach()[0], rtol=1e-4
        )
        assert float(found.noise[group, 0]) == pytest.approx(likelihood.noise.item(), rel=1e-4)
        scale = model.covar_module.outputscale.item()
        assert float(found.outputscale[group, 0]) == pytest.approx(scale, rel=1e-4)
        if kind == "rq":
            assert float(found.alpha[group, 0, 0]) == pytest.approx(base.alpha.item(), rel=1e-4)


def likelihoods(kernel, h, data):
    return Likelihoods(kernel, True, False, h).log_likelihood(data).detach().numpy()


def test_every_way_to_fit_makes_the_data_likelier():
    kernel = Kernel("rbf")
    data, _ = problem(14)
    start = Hyperparameters.start(kernel, G, 1, P, data.x)
    before = likelihoods(kernel, start, data)
    adam = fitter(kernel, gpytorch=True, use_ard=True)(data)
    botorch = fitter(kernel, gpytorch=True, use_ard=True, use_botorch=True)(data)
    sklearn = fitter(kernel, use_ard=True)(data)
    for found in (adam, botorch, sklearn):
        assert (likelihoods(kernel, found, data) > before).all()
        assert (found.noise >= 1e-3).all()
    # Fifty steps of L-BFGS get further than ten of Adam.
    assert (likelihoods(kernel, botorch, data) > likelihoods(kernel, adam, data)).all()
    warm = fitter(kernel, gpytorch=True, use_ard=True)(data, start=botorch, epochs=1)
    assert (likelihoods(kernel, warm, data) > likelihoods(kernel, adam, data)).any()
    per_output = fitter(kernel, gpytorch=True, per_output_hyperparams=True, use_ard=True)(data)
    assert per_output.noise.shape == (G, P)
    assert (likelihoods(kernel, per_output, data) > likelihoods(kernel, adam, data)).all()


# Lengthscales of features that don't matter go to their bounds, which scikit-learn warns of.
@pytest.mark.filterwarnings("ignore:The optimal value")
@pytest.mark.filterwarnings("ignore:lbfgs failed")
@pytest.mark.parametrize("kernel", [Kernel("rbf"), Kernel("rq"), Kernel("matern", 1.5)])
def test_scikit_learns_fit_is_its_own(kernel):
    data, _ = problem(15)
    found = fitter(kernel)(data)
    base = {"rbf": RBF(), "rq": RationalQuadratic(), "matern": Matern(nu=1.5)}[kernel.kind]
    for group in range(G):
        reference = GaussianProcessRegressor(
            ConstantKernel() * base + WhiteKernel(1.0, (1e-3, 1e5)), alpha=0.0
        ).fit(data.x[group].numpy(), data.y[group].numpy())
        h = found.of([group])
        h = h._each(lambda t: t.expand(1, *t.shape[1:]))
        mine = Likelihoods(kernel, False, False, h).log_likelihood(data.of([group])).item()
        best = reference.log_marginal_likelihood_value_
        assert mine >= best - 0.02 * abs(best)  # ten steps are almost all the way
        assert mine <= best + 0.02 * abs(best)


def test_priors_pull_hyperparameters_towards_their_modes():
    kernel = Kernel("rbf")
    rng = np.random.default_rng(0)
    # Pure noise: without a prior the lengthscales run away.
    data = Regression(
        torch.tensor(rng.normal(size=(G, M, D))), torch.tensor(rng.normal(size=(G, M, P)))
    )
    free = fitter(kernel, gpytorch=True)(data)
    held = fitter(kernel, gpytorch=True, use_priors=True)(data)
    mode = (3.0 - 1) / 6.0  # Gamma(3, 6)
    assert ((held.lengthscale - mode).abs() < (free.lengthscale - mode).abs()).all()
    assert (held.noise < free.noise).all()  # Gamma(1.1, 0.05) has its mode at 2, but its mass below


def test_estimated_lengthscales_are_multiples_of_the_radius_and_nothing_is_fitted():
    """Two neighbourhoods worked by hand."""
    x = torch.tensor([[[0.0, 0], [1, 2], [-2, 1]], [[1.0, 1], [1, 2], [3, 1]]]).double()
    y = torch.tensor([[[0.0, 0], [3, 0], [6, 0]], [[2.0, 1], [2, 1], [2, 1]]]).double()
    data = Regression(x, y)
    found = fitter(
        Kernel("rbf"), use_ard=True, est_lengthscales=True, est_lengthscale_constant=3.0
    )(data)
    assert found.lengthscale.tolist() == [[[6.0, 6.0]], [[6.0, 3.0]]]
    isotropic = fitter(Kernel("rbf"), est_lengthscales=True)(data)
    assert isotropic.lengthscale.tolist() == [[[4.0, 4.0]], [[3.0, 3.0]]]
    # Targets 0, 3, 6 have variance 6, zeros none: 3 on average; the second has no variance at all.
    np.testing.assert_allclose(found.outputscale, [[3.0], [1.0]])
    np.testing.assert_allclose(found.noise, [[0.03], [0.01]])
    per_output = fitter(Kernel("rbf"), est_lengthscales=True, per_output_hyperparams=True)(data)
    np.testing.assert_allclose(per_output.outputscale, [[6.0, 1.0], [1.0, 1.0]])


def test_a_fit_looks_at_the_units_of_the_process():
    data, _ = problem(16)
    scaled = Regression(data.x * 1e3 + 5, data.y * 1e6)
    normalized = Normalization(True)
    one, other = (fitter(Kernel("rbf"), normalized, gpytorch=True)(d) for d in (data, scaled))
    np.testing.assert_allclose(one.lengthscale, other.lengthscale, rtol=1e-6)
    assert (one.lengthscale != fitter(Kernel("rbf"), gpytorch=True)(data).lengthscale).all()


def test_a_neighbourhood_that_cannot_be_factored_keeps_its_values_and_harms_no_other():
    data, _ = problem(17)
    broken = Regression(data.x.clone(), data.y)
    broken.x[1] = torch.inf
    sound = fitter(Kernel("rbf"), gpytorch=True)(data)
    found = fitter(Kernel("rbf"), gpytorch=True)(broken)
    start = Hyperparameters.start(Kernel("rbf"), 1, 1, P, data.x)
    np.testing.assert_allclose(found.pack()[[0, 2]], sound.pack()[[0, 2]], rtol=1e-9)
    np.testing.assert_allclose(found.pack()[1], start.pack()[0], rtol=1e-6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kernel": "cosine"}, "--kernel is cosine; choose one of rq, rbf, matern"),
        ({"matern_nu": 2.0}, "--matern_nu is 2.0"),
        ({"mean_type": "quadratic"}, "--mean_type is quadratic"),
        ({"train_size": 1}, "--train_size is 1; it must be 2 or more"),
        ({"holdout_split": 1.0}, "--holdout_split is 1.0"),
        ({"queue_gb": 0}, "--queue_gb must be above 0"),
        ({"composite_kernel": True}, "--composite_kernel needs --gpytorch"),
        ({"mean_type": "linear"}, "--mean_type linear needs --gpytorch"),
        ({"use_ard": True}, "--use_ard with --kernel rq needs --gpytorch"),
        ({"use_priors": True}, "--use_priors needs --gpytorch"),
        ({"use_botorch": True}, "--use_botorch needs --gpytorch"),
        ({"gpytorch": True, "est_lengthscales": True}, "drop one of them"),
        ({"gp_pca": True, "composite_kernel": True, "gpytorch": True}, "--gp_pca mixes"),
        ({"mc_hyper": True}, "--mc_hyper needs --global_hyperparams"),
        ({"single_model": True, "global_hyperparams": True}, "drop --global_hyperparams"),
        ({"warmstart_global": True}, "--warmstart_global needs --global_hyperparams"),
        ({"warmstart_global": True, "single_model": True, "est_lengthscales": True}, "drop one"),
        ({"standardize_gpr_x": True}, "--standardize_gpr_x needs --normalize"),
        ({"use_queue": True, "single_model": True}, "drop --single_model"),
        ({"use_queue": True, "multi_sample": True}, "--multi_sample"),
        ({"update_hyperparams": True}, "--update_hyperparams needs --use_queue"),
    ],
)  # fmt: skip
def test_what_contradicts_itself_is_one_sentence(settings, message):
    with pytest.raises(ReplayError, match=message) as caught:
        check(GaussianProcessSettings(**settings))
    assert "\n" not in str(caught.value)


def test_without_botorch_the_flag_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "botorch.optim.core", None)
    with pytest.raises(ReplayError, match=r"pip install -e '.\[botorch\]'"):
        fitter(Kernel("rbf"), gpytorch=True, use_botorch=True)
