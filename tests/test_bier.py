"""The bier recipe in a buffer: what each setting does to the rows that come out."""

import dataclasses

import numpy as np
import pytest
import torch

from replay_buffers import ReplayBuffer
from replay_buffers.augmentations import Context
from replay_buffers.errors import ReplayError
from replay_buffers.gaussian_process import synthesis
from replay_buffers.gaussian_process.posterior import LocalProcesses
from replay_buffers.gaussian_process.settings import GaussianProcessSettings
from tests.bier_buffers import ACTION, FAST, OBS, SHARED, add, filled, outcomes, transitions


def test_a_row_is_the_exact_posterior_at_the_mixture_of_its_parents():
    """Worked again with numpy alone: neighbours, mixture, kernel, solve."""
    buffer = filled(**FAST, prioritized=True, interp_prio_update=True)
    batch = buffer.sample(32)
    rows, receipt = buffer.storage.rows[:120].astype(np.float64), batch["receipt"]
    features = rows[:, : OBS + ACTION] / rows[:, : OBS + ACTION].std(0)
    targets = rows[:, OBS + ACTION : -2]
    for n in range(32):
        i, j, lam = receipt.numbers[n], receipt.partners[n], float(receipt.lam[n])
        near = np.argsort(((features - features[i]) ** 2).sum(1), kind="stable")[:11]
        assert j in near[1:]
        x, y = rows[near, : OBS + ACTION], targets[near]
        query = lam * rows[i, : OBS + ACTION] + (1 - lam) * rows[j, : OBS + ACTION]
        lengthscale = (2.0 * np.abs(x - rows[i, : OBS + ACTION]).max(0)).mean()
        variance = y.var(0).mean()

        def kernel(a, b, lengthscale=lengthscale, variance=variance):
            squares = ((a[:, None] - b[None]) ** 2).sum(-1)
            return variance * np.exp(-squares / (2 * lengthscale**2))

        noise = max(1e-2 * variance, 1e-3)
        weights = np.linalg.solve(kernel(x, x) + noise * np.eye(11), kernel(x, query[None]))
        expected = (weights * y).sum(0)
        np.testing.assert_allclose(batch["obs"][n], query[:OBS], atol=1e-6)
        np.testing.assert_allclose(batch["actions"][n], query[OBS:], atol=1e-6)
        np.testing.assert_allclose(batch["rewards"][n], expected[0], atol=1e-5)
        np.testing.assert_allclose(batch["new_obs"][n], expected[1:], atol=1e-5)


def test_predictions_are_nearer_to_the_truth_than_mixtures():
    """What the recipe is for: the dynamics are curved, and known here."""

    def error(name, **settings):
        buffer = ReplayBuffer.from_catalog(
            name, obs_dim=OBS, action_dim=ACTION, capacity=2000, seed=1, kneighbors=20, **settings
        )
        add(buffer, 2000)
        batch = buffer.sample(512)
        push = np.concatenate([batch["actions"], -batch["actions"][:, :1]], axis=1)
        truth = batch["obs"] + 0.3 * np.sin(2 * batch["obs"]) + 0.2 * push
        return np.sqrt(((batch["new_obs"] - truth) ** 2).mean())

    readme = {"gpytorch": True, "mc_hyper": True, "kernel": "rbf", "use_ard": True}
    readme |= {"use_delta": True, "normalize": True, "global_hyperparams": True}
    assert error("bier", **readme) < 0.85 * error("nmer")


# Setting -> (settings of both, value): the outcomes of the same seed must differ.
CHANGES = {
    "kernel": ({"est_lengthscales": True}, "matern"),
    "matern_nu": ({"est_lengthscales": True, "kernel": "matern"}, 0.5),
    "use_ard": (FAST, True),
    "composite_kernel": ({"est_lengthscales": True, "kernel": "rq"}, True),
    "normalize": (FAST, True),
    "standardize_gpr_x": ({**FAST, "normalize": True}, True),
    "gp_pca": (FAST, True),
    "gp_pca_components": ({**FAST, "gp_pca": True}, 4),
    "per_output_hyperparams": (FAST, True),
    "est_lengthscale_constant": (FAST, 0.5),
    "est_lengthscales": ({"kernel": "rbf"}, True),
    "use_delta": (FAST, True),
    "sample_gp_cov": (FAST, True),
    "mean_type": ({"kernel": "rbf", "gpytorch": True}, "linear"),
    "gpytorch": ({"kernel": "rbf"}, True),
    "use_botorch": ({"kernel": "rbf", "gpytorch": True}, True),
    "use_priors": ({"kernel": "rbf", "gpytorch": True}, True),
    "global_hyperparams": ({"kernel": "rbf", "gpytorch": True}, True),
    "mc_hyper": ({"kernel": "rbf", "gpytorch": True, "global_hyperparams": True}, True),
    "fit_batch": ({**FAST, "global_hyperparams": True, "mc_hyper": True}, 5),
    "train_size": ({"kernel": "rbf", "gpytorch": True, "global_hyperparams": True}, 30),
    "single_model": (FAST, True),
    "furthest_neighbor": (FAST, 1),
    "prob_interpolation": (FAST, 0.5),
    "kneighbors": (FAST, 5),
    "fp32": (FAST, True),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_setting_changes_what_comes_out(name):
    both, value = CHANGES[name]
    changed = {"k": value} if name == "kneighbors" else {name: value}
    before, after = outcomes(filled(**both)), outcomes(filled(**both, **changed))
    assert np.isfinite(before).all()
    assert np.isfinite(after).all()
    assert (before != after).any()
    if name == "fp32":
        np.testing.assert_allclose(before, after, atol=1e-3)
    else:
        assert np.abs(before - after).max() > 1e-3
    np.testing.assert_array_equal(before, outcomes(filled(**both)))  # and nothing else does


def test_every_setting_has_a_test_of_its_effect():
    elsewhere = {"multi_sample", "use_queue", "queue_gb", "update_hyperparams", "weighted_updates"}
    elsewhere |= {"perform_holdout_eval", "holdout_split", "cpu_only"}
    elsewhere |= {"retrain_interval", "warmstart_global"}
    fields = {field.name for field in dataclasses.fields(GaussianProcessSettings)}
    assert fields == (set(CHANGES) & fields) | elsewhere


# -- when, and on what, hyperparameters are fitted ---------------------------------------------


def test_shared_hyperparameters_are_fitted_again_after_so_many_rows():
    buffer = filled(100, retrain_interval=30, **SHARED)
    fits = []
    for _ in range(6):
        buffer.sample(8)
        fits.append(buffer.stats()["gp_fits"])
        add(buffer, 10)
    assert fits == [1, 0, 0, 1, 0, 0]
    figures = buffer.stats()
    assert figures["gp_noise"] >= 1e-3
    assert figures["gp_mean_lengthscale"] > 0
    assert "gp_fits" not in filled(**FAST).stats()


def test_a_warm_start_begins_where_the_last_fit_ended():
    def second_fit(**settings):
        buffer = filled(100, retrain_interval=10, **SHARED, **settings)
        starts, fit = [], buffer.augmentation._surrogate.fit
        buffer.augmentation._surrogate.fit = lambda data, start: (
            starts.append(start) or fit(data, start)
        )
        buffer.sample(8)
        first = buffer.augmentation._surrogate._h
        add(buffer, 10)
        buffer.sample(8)
        return starts, first

    starts, first = second_fit(warmstart_global=True)
    assert starts[0] is None
    assert starts[1] is first
    assert second_fit()[0] == [None, None]


def test_the_first_fit_and_long_ones_are_announced(monkeypatch):
    said = []
    buffer = filled(100, retrain_interval=10, mc_hyper=True, fit_batch=20, **SHARED)
    buffer.attach(Context(3e-4, say=said.append))
    buffer.sample(8)
    assert len(said) == 2
    assert "20 neighbourhoods of 11 rows" in said[0]
    assert "again after every 10 env steps" in said[1]
    add(buffer, 10)
    buffer.sample(8)
    assert len(said) == 2
    monkeypatch.setattr("replay_buffers.gaussian_process.surrogate._LONG", 0.0)
    add(buffer, 10)
    buffer.sample(8)
    assert len(said) == 3


# -- which rows count --------------------------------------------------------------------------


def test_terminal_rows_pass_and_count_in_no_neighbourhood():
    buffer = filled(120, data={"terminals": 0.2}, **FAST)
    batch = buffer.sample(200)
    ended = batch["terminateds"] == 1
    stored = buffer.storage.rows[batch["receipt"].numbers]
    assert ended.any()
    np.testing.assert_array_equal(batch["new_obs"][ended], stored[ended, 6:9])
    rows = buffer.augmentation._rows
    own = np.flatnonzero(buffer.storage.rows[:120, -2] == 0)
    lists, _ = buffer.partner.neighbors.query(own)
    data = rows.regression(own, lists)
    dead = buffer.storage.rows[lists, -2] == 1
    np.testing.assert_array_equal(data.mask[:, 1:].numpy(), ~dead)
    assert data.mask[:, 0].all()


def test_rows_that_look_differently_far_count_in_no_neighbourhood():
    buffer = filled(120, n_step=3, **FAST)
    rows = buffer.augmentation._rows
    own = np.flatnonzero(buffer.storage.step[:120] < 17)  # of episodes of 20 steps
    lists, _ = buffer.partner.neighbors.query(own)
    short = buffer.storage.step[lists] >= 18
    np.testing.assert_array_equal(rows.regression(own, lists).mask[:, 1:].numpy(), ~short)
    assert np.isfinite(outcomes(buffer)).all()


@pytest.mark.parametrize("fp32", [False, True])
@pytest.mark.parametrize("kernel", ["rbf", "rq", "matern"])
def test_awkward_rows_never_stop_a_run(kernel, fp32):
    """Near-duplicates, a constant dimension, rewards of 1e6, fewer rows than neighbours."""
    readme = {"gpytorch": True, "global_hyperparams": True, "mc_hyper": True, "use_delta": True}
    for normalize in (False, True):
        buffer = ReplayBuffer.from_catalog(
            "bier", obs_dim=OBS, action_dim=ACTION, capacity=300, seed=0, kneighbors=50,
            kernel=kernel, fp32=fp32, normalize=normalize, retrain_interval=10, **readme,
        )  # fmt: skip
        rng = np.random.default_rng(0)
        for count in (1, 1, 3, 20, 100):
            rows = transitions(buffer.schema, count, rng, terminals=0.1, scale=1e6)
            rows[:, 1] = 7.0
            rows[count // 2 :] = rows[count // 2] + 1e-7 * rng.normal(size=rows[count // 2 :].shape)
            rows[:, 3:5] = np.clip(rows[:, 3:5], -1, 1)
            rows[:, -2:] = np.round(np.abs(rows[:, -2:]))
            buffer.add(rows.astype(np.float32), np.arange(count), np.zeros(count, int))
            batch = buffer.sample(64)
            assert all(np.isfinite(batch[key]).all() for key in ("obs", "rewards", "new_obs"))
        assert 0 <= buffer.stats()["gp_fallback_fraction"] <= 1


def test_where_the_process_fails_the_mixture_stays_and_is_counted(monkeypatch):
    expected = filled(**FAST)
    nmer = ReplayBuffer.from_catalog(
        "nmer", obs_dim=OBS, action_dim=ACTION, capacity=200, seed=0, kneighbors=10
    )
    add(nmer, 120)
    predict = LocalProcesses.predict

    def every_other_fails(self, h, data, queries, **options):
        found = predict(self, h, data, queries, **options)
        failed = torch.arange(len(data)) % 2 == 0
        return dataclasses.replace(
            found, failed=failed, mean=torch.where(failed[:, None, None], torch.nan, found.mean)
        )

    good, linear = outcomes(expected), outcomes(nmer)
    monkeypatch.setattr(LocalProcesses, "predict", every_other_fails)
    buffer = filled(**FAST, weighted_updates=True)
    found = buffer.sample(64)
    np.testing.assert_array_equal(found["rewards"][::2], linear[::2, 0])
    np.testing.assert_array_equal(found["rewards"][1::2], good[1::2, 0])
    assert found["weights"][::2].max() < found["weights"][1::2].min()
    assert buffer.stats()["gp_fallback_fraction"] == 0.5


def test_a_row_that_is_not_finite_is_named():
    buffer = filled(**FAST)
    rows = transitions(buffer.schema, 3, np.random.default_rng(0))
    rows[1, 7] = np.nan
    with pytest.raises(ReplayError, match=r"transition 121 has new_obs\[1\] = nan"):
        buffer.add(rows, np.zeros(3, int), np.arange(3))


# -- weights, draws, several samples -----------------------------------------------------------


def test_weights_grow_with_the_density_and_have_mean_one():
    settings = {**FAST, "normalize": True, "weighted_updates": True}
    buffer = filled(**settings, prob_interpolation=0.8)
    densities = []
    log_density = synthesis.Synthesizer.__call__

    def spy(self, *arguments, **options):
        made = log_density(self, *arguments, **options)
        densities.append(made.log_density[:, 0])
        return made

    buffer.augmentation._synthesizer = type("Spy", (synthesis.Synthesizer,), {"__call__": spy})(
        buffer.augmentation._rows, buffer.augmentation._surrogate, buffer.augmentation._settings
    )
    batch = buffer.sample(256)
    real = batch["receipt"].lam == 1
    expected = np.ones(256)
    expected[~real] = 1 / (1 + np.exp(-np.exp(densities[0])))
    np.testing.assert_allclose(batch["weights"], expected / expected.mean(), rtol=1e-6)
    assert batch["weights"].mean() == pytest.approx(1, rel=1e-6)
    assert batch["weights"][real].min() > batch["weights"][~real].max()
    assert (filled(**FAST).sample(64)["weights"] == 1).all()


def test_importance_weights_and_density_weights_multiply():
    def weights(**settings):
        buffer = filled(**FAST, prioritized=True, use_importance_sampling=True, **settings)
        buffer.update(buffer.sample(64)["receipt"], np.linspace(0, 5, 64))
        return buffer.sample(64)["weights"]

    alone, both = weights(), weights(weighted_updates=True)
    density = both / alone
    assert density.mean() == pytest.approx(1, rel=1e-5)
    assert np.ptp(density) > 1e-3


@pytest.mark.parametrize("single", [False, True])
def test_draws_scatter_around_the_mean_as_far_as_the_posterior_says(single):
    settings = {**FAST, "normalize": True, "single_model": single}
    means = outcomes(filled(**settings), 2000)
    buffer = filled(**settings, sample_gp_cov=True)
    drawn = outcomes(buffer, 2000)
    assert np.abs(drawn - means).max() > 0.01
    # The same rows in the same order: only the draw is added, whose mean is 0.
    deviation = (drawn - means).std(0)
    assert (np.abs((drawn - means).mean(0)) < 5 * deviation / np.sqrt(2000)).all()


def test_every_neighbour_yields_a_row_when_asked():
    buffer = filled(k=10, **FAST, prioritized=True, interp_prio_update=True, multi_sample=True)
    batch = buffer.sample(64)  # six rows with ten neighbours each, and four of a seventh
    numbers, partners = batch["receipt"].numbers, batch["receipt"].partners
    assert len(batch["obs"]) == 64
    for first in range(0, 60, 10):
        assert len(set(numbers[first : first + 10])) == 1
        near = buffer.partner.neighbors.query(numbers[first : first + 1])[0][0]
        assert set(partners[first : first + 10]) == set(near)
    # Each is what a batch of its own would have predicted.
    single = filled(k=10, **FAST)
    rows = buffer.augmentation._rows
    lists, _ = buffer.partner.neighbors.query(numbers)
    features = np.concatenate([batch["obs"], batch["actions"]], axis=1)
    made = single.augmentation._synthesizer(
        rows.regression(numbers, lists), features[:, None], np.random.default_rng(0)
    )
    np.testing.assert_allclose(batch["rewards"], made.outcome[:, 0, 0], atol=1e-5)
    np.testing.assert_allclose(batch["new_obs"], made.outcome[:, 0, 1:], atol=1e-5)
    narrow = filled(k=10, **FAST, furthest_neighbor=3, multi_sample=True)
    assert len(set(narrow.sample(9)["receipt"].numbers)) <= 3


def test_a_single_model_predicts_from_rows_of_the_whole_buffer():
    buffer = filled(120, **FAST, normalize=True, single_model=True, train_size=50)
    batch = buffer.sample(64)
    data, model = buffer.augmentation._surrogate._model
    assert data.x.shape == (1, 50, OBS + ACTION)
    features = np.concatenate([batch["obs"], batch["actions"]], axis=1)
    again = model.predict(torch.from_numpy(features)[None].double()).mean[0]
    np.testing.assert_allclose(batch["rewards"], again[:, 0], atol=1e-5)
    assert buffer.stats()["gp_fits"] == 1


def test_the_gpu_is_used_unless_told_otherwise(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert filled(0, **FAST).augmentation._rows.device.type == "cuda"
    assert filled(0, **FAST, cpu_only=True).augmentation._rows.device.type == "cpu"


def test_settings_that_contradict_each_other_are_refused_by_the_buffer():
    with pytest.raises(ReplayError, match="--mc_hyper needs --global_hyperparams"):
        filled(0, mc_hyper=True)
