"""The Gaussian-process room's posteriors against gpytorch's, scikit-learn's and hand-worked cases."""

import dataclasses

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from replay_buffers.gaussian_process import posterior
from replay_buffers.gaussian_process.kernels import Hyperparameters, Kernel
from replay_buffers.gaussian_process.posterior import LocalProcesses
from replay_buffers.gaussian_process.regression import Normalization, Regression
from tests.gaussian_problems import (
    AS_IS,
    KERNELS,
    STATE,
    G,
    M,
    P,
    gpytorch_posterior,
    hyperparameters,
    problem,
)


@pytest.mark.parametrize("split", [None, STATE], ids=["whole", "composite"])
@pytest.mark.parametrize("ard", [False, True], ids=["isotropic", "ard"])
@pytest.mark.parametrize("mean", ["zero", "constant", "linear"])
@pytest.mark.parametrize(("kind", "nu"), KERNELS)
def test_the_posterior_is_gpytorchs_for_every_kernel_mean_and_lengthscale(
    kind, nu, mean, ard, split
):
    kernel = Kernel(kind, nu, split, mean)
    data, queries = problem()
    for outputs in (1, P):
        h = hyperparameters(kernel, ard, outputs)
        expected, variances = gpytorch_posterior(kernel, h, data, queries, ard)
        several = LocalProcesses(kernel, AS_IS).predict(h, data, queries, variance=True)
        np.testing.assert_allclose(several.mean, expected, rtol=0, atol=1e-6)
        np.testing.assert_allclose(several.variance.expand(-1, -1, P), variances, rtol=0, atol=1e-6)
        # One query takes another way, in which it is a row of the factored matrix.
        one = LocalProcesses(kernel, AS_IS).predict(h, data, queries[:, 2:3], variance=True)
        np.testing.assert_allclose(one.mean, expected[:, 2:3], rtol=0, atol=1e-6)
        np.testing.assert_allclose(
            one.variance.expand(-1, -1, P), variances[:, 2:3], rtol=0, atol=1e-6
        )
        assert not (one.failed | one.repaired | several.failed | several.repaired).any()


def test_hyperparameters_may_be_shared_by_all_neighbourhoods():
    kernel = Kernel("rbf")
    data, queries = problem()
    h = hyperparameters(kernel, True, groups=1)
    expected, _ = gpytorch_posterior(kernel, h, data, queries, True)
    np.testing.assert_allclose(
        LocalProcesses(kernel, AS_IS).predict(h, data, queries).mean, expected, atol=1e-6
    )


def test_the_posterior_is_scikit_learns_for_the_rbf_kernel():
    kernel = Kernel("rbf")
    data, queries = problem(3)
    h = hyperparameters(kernel, True)
    found = LocalProcesses(kernel, AS_IS).predict(h, data, queries, variance=True)
    for group in range(G):
        reference = GaussianProcessRegressor(
            ConstantKernel(float(h.outputscale[group, 0])) * RBF(h.lengthscale[group, 0].numpy()),
            alpha=float(h.noise[group, 0]),
            optimizer=None,
        ).fit(data.x[group].numpy(), data.y[group].numpy())
        mean, std = reference.predict(queries[group].numpy(), return_std=True)
        np.testing.assert_allclose(found.mean[group], mean, rtol=0, atol=1e-6)
        np.testing.assert_allclose(found.variance[group].expand(-1, P), std**2, rtol=0, atol=1e-6)


def by_hand(x, y, queries, standardize=False):
    """The three brought to a neighbourhood's units, and the way back for targets."""
    if standardize:
        low, size = x.mean(0), x.std(0, unbiased=False)
    else:
        low, size = x.amin(0), x.amax(0) - x.amin(0)
    center, spread = y.mean(0), y.std(0, unbiased=False)
    scaled = (x - low) / size, (y - center) / spread, (queries - low) / size
    return scaled, lambda z: z * spread + center


@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("mean", ["zero", "linear"])
def test_normalized_predictions_are_those_in_normalized_units(standardize, mean):
    kernel = Kernel("matern", 1.5, mean=mean)
    data, queries = problem(5)
    h = hyperparameters(kernel, True)
    local = LocalProcesses(kernel, Normalization(True, standardize))
    several = local.predict(h, data, queries, variance=True, spread=True)
    one = local.predict(h, data, queries[:, :1], variance=True, spread=True)
    plain = LocalProcesses(kernel, AS_IS)
    for g in range(G):
        (x, y, q), back = by_hand(data.x[g], data.y[g], queries[g], standardize)
        reference = plain.predict(h.of([g]), Regression(x[None], y[None]), q[None], variance=True)
        np.testing.assert_allclose(several.mean[g], back(reference.mean[0]), atol=1e-9)
        np.testing.assert_allclose(one.mean[g], back(reference.mean[0])[:1], atol=1e-9)
        # Variances stay in the process's units; the spread brings them to the data's.
        np.testing.assert_allclose(several.variance[g], reference.variance[0], atol=1e-9)
        np.testing.assert_allclose(several.spread[g, 0], data.y[g].std(0, unbiased=False))


@pytest.mark.parametrize("normalization", [AS_IS, Normalization(True), Normalization(True, True)])
def test_rows_out_of_the_mask_might_as_well_not_be_there(normalization):
    kernel = Kernel("rq", mean="constant")
    data, queries = problem(6)
    h = hyperparameters(kernel, False)
    mask = torch.ones(G, M, dtype=torch.bool)
    mask[:, [3, 7]] = False
    mask[1, 3] = True
    filled = data.x.clone(), data.y.clone()
    for values in filled:
        values[~mask] = values[:, :1].expand_as(values)[~mask]
    local = LocalProcesses(kernel, normalization)
    for q in (queries, queries[:, :1]):
        found = local.predict(h, Regression(*filled, mask), q, variance=True, spread=True)
        for g in range(G):
            fewer = Regression(data.x[g, mask[g]][None], data.y[g, mask[g]][None])
            reference = local.predict(h.of([g]), fewer, q[[g]], variance=True, spread=True)
            np.testing.assert_allclose(found.mean[g], reference.mean[0], atol=1e-9)
            np.testing.assert_allclose(found.variance[g], reference.variance[0], atol=1e-9)


def test_projected_features_are_scikit_learns_principal_components():
    data, queries = problem(7)
    units = Normalization(True, False, 2).units(data)
    for g in range(G):
        (x, _, _), _ = by_hand(data.x[g], data.y[g], queries[g])
        pca = PCA(2).fit(x.numpy())
        mine, theirs = units.features(data.x)[g].numpy(), pca.transform(x.numpy())
        # Up to sign, and a shift that no kernel sees.
        for c in range(2):
            correlation = np.corrcoef(mine[:, c], theirs[:, c])[0, 1]
            assert abs(correlation) == pytest.approx(1, abs=1e-9)
            assert mine[:, c].std() == pytest.approx(theirs[:, c].std(), rel=1e-9)
    kernel = Kernel("rbf")
    h = dataclasses.replace(hyperparameters(kernel, True), lengthscale=torch.ones(G, 1, 2).double())
    projected = Regression(units.features(data.x), data.y)
    expected = LocalProcesses(kernel, AS_IS).predict(
        h, Regression(projected.x, units.targets(data.y)), units.features(queries)
    )
    found = LocalProcesses(kernel, Normalization(True, False, 2)).predict(h, data, queries)
    np.testing.assert_allclose(found.mean, units.restore(expected.mean), atol=1e-9)
    one = LocalProcesses(kernel, Normalization(True, False, 2)).predict(h, data, queries[:, :1])
    np.testing.assert_allclose(one.mean, found.mean[:, :1], atol=1e-9)


def test_predictions_scale_with_the_targets_and_ignore_constant_dimensions():
    kernel = Kernel("rbf")
    data, queries = problem(8)
    h = hyperparameters(kernel, True)
    local = LocalProcesses(kernel, Normalization(True))
    base = local.predict(h, data, queries[:, :1])
    big = local.predict(h, Regression(data.x, data.y * 1e6), queries[:, :1])
    np.testing.assert_allclose(big.mean, base.mean * 1e6, rtol=1e-9)
    # A feature and a target that never change: the feature decides nothing, the target is known.
    rounding = 1e4 * (
        1 + 1e-8 * torch.randn(G, M, 1, dtype=torch.float64, generator=torch.manual_seed(0))
    )
    x = torch.cat([data.x, rounding], 2)
    y = torch.cat([data.y, torch.full_like(rounding, 3.0)], 2)
    q = torch.cat([queries[:, :1], rounding[:, :1]], 2)
    wider = dataclasses.replace(
        h, lengthscale=torch.cat([h.lengthscale, torch.ones(G, 1, 1).double()], 2)
    )
    found = local.predict(wider, Regression(x, y), q, variance=True, spread=True)
    np.testing.assert_allclose(found.mean[..., :P], base.mean, atol=1e-5)
    np.testing.assert_allclose(found.mean[..., P], 3.0, rtol=1e-12)


def test_batches_in_several_parts_are_the_same_as_in_one(monkeypatch):
    kernel = Kernel("rq")
    data, queries = problem(9)
    h = hyperparameters(kernel, True)
    local = LocalProcesses(kernel, Normalization(True))
    for q in (queries, queries[:, :1]):
        whole = local.predict(h, data, q, variance=True, spread=True)
        monkeypatch.setattr(posterior, "_AT_ONCE_BYTES", 1)
        parts = local.predict(h, data, q, variance=True, spread=True)
        monkeypatch.undo()
        for name in ("mean", "variance", "noise", "spread", "failed", "repaired"):
            np.testing.assert_array_equal(getattr(whole, name), getattr(parts, name))


def ill_conditioned():
    """Float32 with an outputscale that drowns the noise, on rows of which two are equal."""
    data, queries = problem(10, dtype=torch.float32)
    data.x[1, 5] = data.x[1, 2]
    data.y[1, 5] = data.y[1, 2]
    h = hyperparameters(Kernel("rbf"), True)._each(lambda t: t.float())
    h = dataclasses.replace(h, outputscale=torch.full((G, 1), 1e6), noise=torch.full((G, 1), 1e-3))
    return data, queries, h


@pytest.mark.parametrize("several", [False, True])
def test_near_duplicates_are_dropped_and_the_prediction_stands(several):
    data, queries, h = ill_conditioned()
    queries = queries if several else queries[:, :1]
    found = LocalProcesses(Kernel("rbf"), AS_IS).predict(h, data, queries, variance=True)
    assert found.repaired.tolist() == [False, True, False]
    assert not found.failed.any()
    kept = [row for row in range(M) if row != 5]
    reference = LocalProcesses(Kernel("rbf"), AS_IS).predict(
        h.of([1])._each(lambda t: t.double()),
        Regression(data.x[[1]][:, kept].double(), data.y[[1]][:, kept].double()),
        queries[[1]].double(),
    )
    np.testing.assert_allclose(found.mean[1], reference.mean[0], rtol=1e-2, atol=1e-2)


def test_jitter_comes_next_and_what_nothing_helps_is_marked_as_failed():
    data, queries, h = ill_conditioned()
    # Lengthscales so long that all rows are one: no pair is a duplicate more than any other.
    h = dataclasses.replace(
        h, lengthscale=h.lengthscale * torch.tensor([1.0, 3e2, 1.0])[:, None, None]
    )
    h.lengthscale[2] = torch.nan
    found = LocalProcesses(Kernel("matern", 2.5), AS_IS).predict(h, data, queries[:, :1])
    assert found.failed.tolist() == [False, False, True]
    assert found.repaired[1]
    assert found.mean[:2].isfinite().all()
    assert (found.mean[1, 0] - data.y[1].mean(0)).abs().max() < data.y[1].std()


def test_draws_have_the_posteriors_moments_and_the_density_is_gaussian():
    kernel = Kernel("rbf")
    data, queries = problem(11)
    h = hyperparameters(kernel, True)
    found = LocalProcesses(kernel, Normalization(True)).predict(
        h, data, queries, variance=True, spread=True
    )
    normal = torch.randn(
        4000, *found.mean.shape, dtype=torch.float64, generator=torch.manual_seed(0)
    )
    draws = torch.stack([found.draw(n) for n in normal])
    deviation = found.variance.sqrt() * found.spread
    assert ((draws.mean(0) - found.mean).abs() <= 5 * deviation / np.sqrt(4000)).all()
    np.testing.assert_allclose(draws.std(0), deviation.expand_as(found.mean), rtol=0.08)
    expected = torch.distributions.Normal(0.0, (found.variance + h.noise[:, None]).sqrt()).log_prob(
        torch.zeros(()).double()
    )
    np.testing.assert_allclose(found.log_density(), expected.mean(-1), rtol=1e-12)


def test_hyperparameters_pack_average_and_come_back_from_their_state():
    kernel = Kernel("rq", split=STATE, mean="linear")
    h = hyperparameters(kernel, True, outputs=P)
    again = h.unpack(h.pack())
    restored = Hyperparameters.from_state(h.get_state(), torch.device("cpu"))
    for name, tensor in h.tensors().items():
        np.testing.assert_array_equal(again.tensors()[name], tensor)
        np.testing.assert_array_equal(restored.tensors()[name], tensor)
        np.testing.assert_allclose(h.average().tensors()[name][0], tensor.mean(0))
    assert h.of([2]).noise.equal(h.noise[[2]])
    assert h.average().of([2]).noise.equal(h.average().noise)
