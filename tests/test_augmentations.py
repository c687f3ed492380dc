import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay_buffers.augmentations import GaussianNoise, Identity, Mixture, Sample
from replay_buffers.errors import ReplayError
from replay_buffers.storage import Schema

SCHEMA = Schema(3, 2)


def random_rows(rng, count, terminals=0.0):
    return SCHEMA.pack(
        rng.normal(size=(count, 3)) * 5,
        rng.uniform(-1, 1, (count, 2)),
        rng.normal(size=count),
        rng.normal(size=(count, 3)),
        rng.random(count) < terminals,
        rng.random(count) < 0.2,
    )


def sample_of(rows, partners=None, partnered=None, weights=None, partner_weights=None):
    count = len(rows)
    return Sample(
        SCHEMA,
        rows.copy(),
        np.ones(count, np.float32) if weights is None else weights,
        partners,
        np.ones(count, bool) if partnered is None else partnered,
        partner_weights,
    )


@given(st.integers(1, 40), st.integers(0, 1000), st.sampled_from(["beta", "uniform"]))
def test_a_mixture_is_convex_and_never_mixes_a_terminal(count, seed, law):
    rng = np.random.default_rng(seed)
    x, y = random_rows(rng, count, 0.3), random_rows(rng, count, 0.3)
    partnered = rng.random(count) < 0.8
    sample = sample_of(x, y, partnered)
    Mixture(law=law)(sample, rng)
    z = sample.rows
    untouched = ~partnered | (x[:, -2] > 0) | (y[:, -2] > 0)
    np.testing.assert_array_equal(z[untouched], x[untouched])
    np.testing.assert_array_equal(z[:, -2:], x[:, -2:])
    assert np.abs(z[:, 3:5]).max() <= 1.0
    low, high = np.minimum(x, y), np.maximum(x, y)
    assert (z[:, :-2] >= low[:, :-2] - 1e-5).all()
    assert (z[:, :-2] <= high[:, :-2] + 1e-5).all()
    # One lam for the whole row.
    mixed = ~untouched
    lam = (z[mixed, :-2] - y[mixed, :-2]) / (x[mixed, :-2] - y[mixed, :-2])
    far = np.abs(x[mixed, :-2] - y[mixed, :-2]) > 0.1
    for row, wide in zip(lam, far, strict=True):
        assert np.ptp(row[wide]) < 1e-3 if wide.any() else True


def test_equal_rows_mix_to_themselves_exactly():
    rng = np.random.default_rng(0)
    x = random_rows(rng, 500)
    sample = sample_of(x, x.copy())
    Mixture()(sample, rng)
    np.testing.assert_array_equal(sample.rows, x)


def lams(mixture, count=20_000):
    """The lam of each row, read off a mixture of 1 (the sampled row) and 0 (its partner)."""
    ones, zeros = (
        np.zeros((count, SCHEMA.width), np.float32),
        np.zeros((count, SCHEMA.width), np.float32),
    )
    ones[:, 0] = 1
    sample = sample_of(ones, zeros)
    mixture(sample, np.random.default_rng(3))
    return sample.rows[:, 0].astype(np.float64)


@pytest.mark.parametrize("alpha", [0.4, 0.75, 4.0])
def test_beta_law_has_the_moments_of_beta(alpha):
    drawn = lams(Mixture(alpha=alpha))
    # Beta(a, a): mean 1/2, variance 1 / (4 (2a + 1)).
    assert drawn.mean() == pytest.approx(0.5, abs=0.02)
    assert drawn.var() == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.05)


def test_uniform_law_is_uniform():
    counts, _ = np.histogram(lams(Mixture(law="uniform")), bins=10, range=(0, 1))
    assert np.abs(counts - 2000).max() < 5 * np.sqrt(20_000 * 0.1 * 0.9)


def test_probability_decides_per_row_whether_it_is_mixed():
    mixture = Mixture(law="uniform", probability=0.3)
    drawn = lams(mixture)
    assert (drawn != 1).mean() == pytest.approx(0.3, abs=0.02)
    figures = mixture.stats()
    assert figures["mixed_fraction"] == pytest.approx((drawn != 1).mean(), abs=1e-3)
    assert figures["mean_lam"] == pytest.approx(drawn[drawn != 1].mean(), abs=1e-3)
    assert mixture.stats() == {"mixed_fraction": 0.0}


def test_weights_mix_as_the_rows_do():
    rng = np.random.default_rng(0)
    x, y = np.zeros((50, SCHEMA.width), np.float32), np.zeros((50, SCHEMA.width), np.float32)
    x[:, 0] = 1
    y[:10, -2] = 1  # these pairs stay unmixed
    sample = sample_of(
        x, y, weights=np.full(50, 0.8, np.float32), partner_weights=np.full(50, 0.2, np.float32)
    )
    Mixture()(sample, rng)
    lam = sample.rows[:, 0]
    np.testing.assert_allclose(sample.weights, 0.2 + lam * 0.6, rtol=1e-5)
    np.testing.assert_allclose(sample.weights[:10], 0.8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": 0}, "--mixup_alpha"),
        ({"probability": 1.2}, "--prob_interpolation"),
        ({"law": "midpoint"}, "unknown"),
    ],
)
def test_mixture_settings_out_of_range_are_refused(options, message):
    with pytest.raises(ReplayError, match=message):
        Mixture(**options)


def test_a_mixture_without_partners_is_an_error():
    rows = random_rows(np.random.default_rng(0), 3)
    with pytest.raises(ReplayError, match="partner"):
        Mixture()(Sample(SCHEMA, rows, np.ones(3, np.float32)), np.random.default_rng(0))


def test_gaussian_noise_is_multiplicative_and_drawn_per_element():
    rng = np.random.default_rng(0)
    rows = np.ones((20_000, SCHEMA.width), np.float32)
    rows[:, 3:5] = 0.5
    rows[:, 1] = 0  # multiplied, so 0 stays 0
    sample = sample_of(rows)
    GaussianNoise(0.1)(sample, rng)
    noise = sample.rows[:, [0, 2, 5, 6, 7, 8]] - 1
    np.testing.assert_allclose(noise.std(0), 0.1, rtol=0.03)
    np.testing.assert_allclose(np.corrcoef(noise.T) - np.eye(6), 0, atol=0.04)
    np.testing.assert_allclose((sample.rows[:, 3:5] / 0.5 - 1).std(0), 0.1, rtol=0.03)
    assert (sample.rows[:, 1] == 0).all()
    np.testing.assert_array_equal(sample.rows[:, -2:], rows[:, -2:])


def test_noised_actions_stay_in_the_box():
    rows = np.ones((500, SCHEMA.width), np.float32)
    sample = sample_of(rows)
    GaussianNoise(0.5)(sample, np.random.default_rng(0))
    actions = sample.rows[:, 3:5]
    assert actions.max() == 1.0
    assert actions.min() < 1.0


def test_identity_changes_nothing():
    rows = random_rows(np.random.default_rng(0), 9)
    sample = sample_of(rows)
    Identity()(sample, np.random.default_rng(0))
    np.testing.assert_array_equal(sample.rows, rows)
