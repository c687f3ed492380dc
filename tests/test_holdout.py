"""Held-out evaluation: cases with answers that can be worked by hand."""

import numpy as np
import pytest
import torch

from replay_buffers.gaussian_process import holdout
from replay_buffers.gaussian_process.holdout import Split
from replay_buffers.gaussian_process.kernels import Hyperparameters, Kernel
from replay_buffers.gaussian_process.posterior import LocalProcesses, noisy
from replay_buffers.gaussian_process.regression import Normalization, Regression
from tests.bier_buffers import FAST, add, filled

NAMES = ["reward", "new_obs_0"]


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


def hyperparameters(lengthscale=1.0, noise=1e-3):
    one = torch.ones(1, 1).double()
    return Hyperparameters(
        torch.full((1, 1, 2), lengthscale).double(), one, noise * one, torch.ones(1, 1, 1).double()
    )


def functions(groups=40, rows=21, seed=0, noise=0.0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (groups, rows, 2))
    y = np.stack([np.sin(3 * x[..., 0]), np.cos(3 * x[..., 1]) * x[..., 0]], -1)
    return Regression(tensor(x), tensor(y + noise * rng.normal(size=y.shape)))


def test_a_split_leaves_out_its_share_and_never_the_own_row():
    data = functions(rows=11)
    parts = holdout.split(data, 0.2, np.random.default_rng(0))
    assert parts.kept.x.shape[1], parts.held.x.shape[1] == (9, 2)
    np.testing.assert_array_equal(parts.kept.x[:, 0], data.x[:, 0])
    for g in range(len(data)):
        together = torch.cat([parts.kept.x[g], parts.held.x[g]])
        assert sorted(together.tolist()) == sorted(data.x[g].tolist())
    assert len(np.unique(parts.held.x[..., 0])) == 80  # other rows in other neighbourhoods
    assert holdout.split(functions(rows=2), 0.2, np.random.default_rng(0)) is None
    assert holdout.split(functions(rows=3), 0.2, np.random.default_rng(0)).held.x.shape[1] == 1


def by_hand():
    """Own row at the origin, others at (2, 0), (0, 2), (-2, -2); held out (1, 0.1) and (-3, -3)."""
    kept_x = tensor([[[0, 0], [2, 0], [0, 2], [-2, -2]]])
    kept_y = tensor([[[0, 1], [4, 1], [8, 5], [-4, 3]]])
    held_x, held_y = tensor([[[1, 0.1], [-3, -3]]]), tensor([[[2, 2], [-6, 4]]])
    return Split(Regression(kept_x, kept_y), Regression(held_x, held_y))


def test_the_nearest_neighbour_and_the_closest_mixture_are_those_worked_by_hand():
    parts = by_hand()
    # (1, 0.1) lies at 1.005 from the origin and 1.005 from (2, 0): distances sqrt(1.01), the first.
    nearest = holdout.nearest_neighbor(parts)
    np.testing.assert_allclose(nearest[0, 1], [-4, 3])
    assert nearest[0, 0].tolist() in ([0, 1], [4, 1])
    # On the way to (2, 0) half-way; beyond (-2, -2) the mixture is that row itself.
    mixture = holdout.linear_mixture(parts)
    np.testing.assert_allclose(mixture[0], [[2, 1], [-4, 3]], atol=1e-9)


def test_rows_out_of_the_mask_are_nobodys_neighbour():
    parts = by_hand()
    mask = torch.tensor([[True, False, True, True]])
    masked = Split(Regression(parts.kept.x, parts.kept.y, mask), parts.held)
    np.testing.assert_allclose(holdout.nearest_neighbor(masked)[0, 0], [0, 1])
    assert holdout.linear_mixture(masked)[0, 0].tolist() != [2, 1]


def test_errors_are_per_target_in_its_own_units():
    parts = by_hand()
    local = LocalProcesses(Kernel("rbf"), Normalization())
    figures = holdout.evaluate(local, hyperparameters(), parts, NAMES)
    # The mixture errs by (0, -1) and (2, -1), the targets deviate by (4, 1).
    assert figures["holdout_linear_rmse/reward"] == pytest.approx(np.sqrt(2))
    assert figures["holdout_linear_mae/reward"] == pytest.approx(1)
    assert figures["holdout_linear_rmse/new_obs_0"] == pytest.approx(1)
    assert figures["holdout_linear_rmse"] == pytest.approx(np.sqrt((2 / 16 + 1) / 2))
    mean = local.predict(hyperparameters(), parts.kept, parts.held.x).mean
    errors = (mean - parts.held.y)[0].numpy()
    assert figures["holdout_gp_mae/reward"] == pytest.approx(np.abs(errors[:, 0]).mean())
    assert figures["holdout_gp_rmse/new_obs_0"] == pytest.approx(
        np.sqrt((errors[:, 1] ** 2).mean())
    )
    # A held-out row that doesn't count takes its error away.
    mask = torch.tensor([[True, False]])
    fewer = Split(parts.kept, Regression(parts.held.x, parts.held.y, mask))
    assert (
        holdout.evaluate(local, hyperparameters(), fewer, NAMES)["holdout_linear_mae/reward"] == 0
    )


def test_on_curved_functions_the_process_is_best():
    data = functions(noise=0.05, groups=200, rows=41)
    parts = holdout.split(data, 0.2, np.random.default_rng(1))
    local = LocalProcesses(Kernel("rbf"), Normalization(True))
    figures = holdout.evaluate(local, hyperparameters(0.6, noise=0.01), parts, NAMES)
    assert figures["holdout_gp_rmse"] < 0.7 * figures["holdout_linear_rmse"]
    assert figures["holdout_gp_rmse"] < 0.7 * figures["holdout_nearest_rmse"]


def test_a_process_with_the_true_hyperparameters_is_calibrated():
    """Targets drawn from the process itself: 95 % lie inside its 95 % interval."""
    rng = np.random.default_rng(0)
    x = tensor(rng.uniform(-1, 1, (200, 21, 2)))
    truth = hyperparameters(0.7, noise=0.05)
    lower = torch.linalg.cholesky(noisy(Kernel("rbf"), truth, 0, x, None))
    y = lower @ tensor(rng.normal(size=(200, 21, 2)))
    parts = holdout.split(Regression(x, y), 0.2, rng)
    local = LocalProcesses(Kernel("rbf"), Normalization())

    def coverage(h):
        return holdout.evaluate(local, h, parts, NAMES)["holdout_gp_coverage"]

    # 1600 targets, whose errors correlate a little: four standard errors are 0.022.
    assert coverage(truth) == pytest.approx(0.95, abs=0.022)
    assert coverage(hyperparameters(0.7, noise=0.005)) < 0.85
    assert coverage(hyperparameters(0.7, noise=0.5)) > 0.98


def test_where_the_process_fails_it_is_judged_by_the_mixture_it_falls_back_on():
    parts = by_hand()
    local = LocalProcesses(Kernel("rbf"), Normalization())
    figures = holdout.evaluate(local, hyperparameters(float("nan")), parts, NAMES)
    for name in NAMES:
        for error in ("rmse", "mae"):
            key = f"{error}/{name}"
            assert figures[f"holdout_gp_{key}"] == figures[f"holdout_linear_{key}"]
    assert "holdout_gp_coverage" not in figures


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("delta", [False, True])
def test_a_buffer_reports_it_and_its_batches_stay_the_same(single, delta):
    settings = {**FAST, "normalize": True, "single_model": single, "use_delta": delta}
    plain, judged = filled(**settings), filled(**settings, perform_holdout_eval=True)
    assert not any(name.startswith("holdout") for name in judged.stats())  # nothing sampled yet
    for _ in range(3):
        one, two = plain.sample(32), judged.sample(32)
        np.testing.assert_array_equal(one["new_obs"], two["new_obs"])
        figures = judged.stats()
        add(plain, 5)
        add(judged, 5)
    word = "delta" if delta else "new_obs"
    names = {
        f"{kind}/{name}"
        for kind in ("rmse", "mae")
        for name in ("reward", *(f"{word}_{i}" for i in range(3)))
    }
    for method in ("gp", "linear", "nearest"):
        assert {f"holdout_{method}_{name}" for name in (*names, "rmse")} <= set(figures)
    assert 0 <= figures["holdout_gp_coverage"] <= 1
    assert not any(name.startswith("holdout") for name in plain.stats())
    other = filled(**settings, perform_holdout_eval=True, holdout_split=0.6)
    other.sample(32)
    one = filled(**settings, perform_holdout_eval=True)
    one.sample(32)
    assert other.stats()["holdout_gp_rmse"] != one.stats()["holdout_gp_rmse"]
