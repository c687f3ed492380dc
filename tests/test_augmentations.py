import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay_buffers.augmentations import (
    AdaptiveMixture,
    Context,
    GaussianNoise,
    Identity,
    Mixture,
    Sample,
    StateViews,
)
from replay_buffers.augmentations.state_views import VIEWS
from replay_buffers.errors import ReplayError
from replay_buffers.storage import Schema, Storage

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
        schema=SCHEMA,
        rows=rows.copy(),
        weights=np.ones(count, np.float32) if weights is None else weights,
        partners=partners,
        partnered=np.ones(count, bool) if partnered is None else partnered,
        partner_weights=partner_weights,
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


@pytest.mark.parametrize("kind", ["mixture", "ct"])
def test_use_delta_reaches_the_same_new_obs_by_the_difference(kind):
    def mixed(use_delta):
        rng = np.random.default_rng(0)
        x, y = random_rows(rng, 60), random_rows(rng, 60)
        x[:, :3] += 1e4  # far away, so that rounding shows which road was taken
        sample = sample_of(x, y)
        if kind == "mixture":
            augmentation = Mixture(use_delta=use_delta)
        else:
            augmentation = AdaptiveMixture(SCHEMA, 0, fixed=0.75, use_delta=use_delta)
        augmentation(sample, rng)
        return x, y, sample

    obs, new_obs = SCHEMA.column("obs"), SCHEMA.column("new_obs")
    x, y, sample = mixed(True)
    lam = sample.lam[:, None]
    delta_x, delta_y = x[:, new_obs] - x[:, obs], y[:, new_obs] - y[:, obs]
    expected = sample.rows[:, obs] + (delta_y + lam * (delta_x - delta_y))
    np.testing.assert_array_equal(sample.rows[:, new_obs], expected)
    plain = mixed(False)[2].rows
    np.testing.assert_allclose(sample.rows, plain, atol=1e-2)
    assert (sample.rows[:, new_obs] != plain[:, new_obs]).any()


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
        ({"decay": -0.1}, "--interp_decay_rate"),
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


def test_the_chance_of_mixing_falls_with_the_rows_added():
    mixture = Mixture(law="uniform", probability=0.8, decay=0.001)

    def fraction(added):
        ones, zeros = (
            np.zeros((20_000, SCHEMA.width), np.float32),
            np.zeros((20_000, SCHEMA.width), np.float32),
        )
        ones[:, 0] = 1
        sample = sample_of(ones, zeros)
        sample.added = added
        mixture(sample, np.random.default_rng(3))
        return (sample.rows[:, 0] != 1).mean()

    assert fraction(0) == pytest.approx(0.8, abs=0.02)
    assert fraction(300) == pytest.approx(0.5, abs=0.02)
    assert fraction(900) == 0


def test_additive_noise_is_in_units_of_each_dimensions_deviation():
    rng = np.random.default_rng(0)
    storage = Storage(SCHEMA, 5000)
    rows = random_rows(rng, 5000)
    rows[:, 0] *= 100
    storage.add(rows, np.zeros(5000, int), np.arange(5000))
    sample = sample_of(rows)
    GaussianNoise(0.2, storage)(sample, rng)
    change = sample.rows - rows
    for column in (0, 1, 2, 5, 6, 7, 8):
        assert change[:, column].std() == pytest.approx(0.2 * rows[:, column].std(), rel=0.05)
    np.testing.assert_array_equal(sample.rows[:, -2:], rows[:, -2:])
    assert np.abs(sample.rows[:, 3:5]).max() <= 1


# -- S4RL ------------------------------------------------------------------------------------------


def viewed(view, count=20_000, views=1, context=None):
    """(rows before, rows after) for rows with obs (1, 2, 4) and new_obs (10, 20, 40)."""
    rows = np.zeros((count, SCHEMA.width), np.float32)
    rows[:, :3], rows[:, 6:9] = (1, 2, 4), (10, 20, 40)
    rows[:, 3:6] = (0.5, -0.5, 7)
    following = np.zeros_like(rows)
    following[:, :3], following[:, 6:9] = (10, 20, 40), (100, 200, 400)
    sample = sample_of(rows, following)
    augmentation = StateViews(view, views)
    if context:
        augmentation.attach(context)
    augmentation(sample, np.random.default_rng(5))
    return np.tile(rows, (views, 1)), sample.rows


def test_s4rl_has_eight_views_and_none_touches_action_reward_or_flags():
    assert len(VIEWS) == 8
    context = Context(1e-3, lambda obs: np.ones_like(obs))
    for view in VIEWS:
        before, after = viewed(view, context=context)
        untouched = [3, 4, 5, 9, 10]
        np.testing.assert_array_equal(before[:, untouched], after[:, untouched])
        assert (before[:, :3] != after[:, :3]).any()
        alike = view not in ("adversarial", "mixup_obs")
        assert (before[:, 6:9] != after[:, 6:9]).any() == alike


def test_s4rl_gaussian_and_uniform():
    for view, deviation, bound in (
        ("gaussian", 3e-4, 2e-3),
        ("uniform", 3e-4 / np.sqrt(3), 3.05e-4),
    ):
        before, after = viewed(view)
        change = after[:, :1].astype(float) - before[:, :1]
        assert change.std() == pytest.approx(deviation, rel=0.05)
        assert np.abs(change).max() <= bound
        assert abs(np.corrcoef(change[:, 0], (after - before)[:, 6])[0, 1]) < 0.05  # own draws


def test_s4rl_amplitude_scales_each_dimension():
    before, after = viewed("amplitude")
    factors = after[:, [0, 1, 2, 6, 7, 8]] / before[:, [0, 1, 2, 6, 7, 8]]
    assert factors.min() >= 0.8 - 1e-6
    assert factors.max() <= 1.2 + 1e-6
    assert factors.mean() == pytest.approx(1, abs=0.01)
    np.testing.assert_allclose(np.corrcoef(factors.T) - np.eye(6), 0, atol=0.04)


def test_s4rl_dropout_zeroes_a_tenth():
    before, after = viewed("dropout")
    zeroed = after[:, [0, 1, 2, 6, 7, 8]] == 0
    np.testing.assert_allclose(zeroed.mean(0), 0.1, atol=0.012)
    np.testing.assert_array_equal(after[:, :3][~zeroed[:, :3]], before[:, :3][~zeroed[:, :3]])


def test_s4rl_switch_swaps_two_dimensions():
    before, after = viewed("switch")
    np.testing.assert_array_equal(np.sort(after[:, :3]), np.sort(before[:, :3]))
    assert ((after[:, :3] != before[:, :3]).sum(1) == 2).all()
    pairs, counts = np.unique(after[:, :3], axis=0, return_counts=True)
    assert len(pairs) == 3
    assert counts.min() > 6300
    assert counts.max() < 7000


def test_s4rl_adversarial_steps_along_the_sign_of_the_gradient():
    asked = []

    def gradient(obs):
        asked.append(obs.copy())
        return np.tile(np.float32([5.0, -0.1, 0.0]), (len(obs), 1))

    before, after = viewed("adversarial", count=4, context=Context(1e-3, gradient))
    np.testing.assert_allclose(after[:, :3] - before[:, :3], [[1e-4, -1e-4, 0]] * 4, atol=3e-7)
    np.testing.assert_array_equal(asked[0], before[:, :3])
    with pytest.raises(ReplayError, match="adversarial"):
        StateViews("adversarial").attach(Context(1e-3))
    with pytest.raises(ReplayError, match="attach"):
        viewed("adversarial", count=2)


@pytest.mark.parametrize("view", ["mixup", "mixup_obs"])
def test_s4rl_mixup_moves_obs_towards_its_successor(view):
    before, after = viewed(view)
    lam = (after[:, :3] - before[:, 6:9]) / (before[:, :3] - before[:, 6:9])
    assert np.ptp(lam, axis=1).max() < 1e-5  # one lam a row
    assert lam[:, 0].mean() == pytest.approx(0.5, abs=0.02)
    assert lam[:, 0].var() == pytest.approx(1 / (4 * 1.8), rel=0.05)  # Beta(.4, .4)


class Fixed:
    """A generator whose every lam is `lam`."""

    def __init__(self, lam):
        self.lam = lam

    def beta(self, a, b, shape):
        return np.full(shape, self.lam)


def test_s4rl_mixup_mixes_both_states_with_their_own_successors():
    # s_t = 1, s_t+1 = 3, s_t+2 = 11, lam = 1/4: 1/4 + 9/4 = 2.5 and 3/4 + 33/4 = 9.
    schema = Schema(1, 1)
    row = schema.pack([[1]], [[0.5]], [7], [[3]], [0], [0])
    following = schema.pack([[3]], [[-0.5]], [8], [[11]], [0], [1])  # a time limit is no terminal
    sample = Sample(schema, row.copy(), np.ones(1, np.float32), partners=following)
    sample.partnered = np.ones(1, bool)
    augmentation = StateViews()
    augmentation(sample, Fixed(0.25))
    np.testing.assert_array_equal(sample.rows, [[2.5, 0.5, 7, 9, 0, 0]])
    assert augmentation.stats() == {"mixed_fraction": 1.0, "mean_lam": 0.25}
    sample.rows = row.copy()
    StateViews("mixup_obs")(sample, Fixed(0.25))
    np.testing.assert_array_equal(sample.rows, [[2.5, 0.5, 7, 3, 0, 0]])


def test_s4rl_mixup_leaves_rows_at_an_episodes_end():
    rng = np.random.default_rng(0)
    x, y = random_rows(rng, 60, 0.3), random_rows(rng, 60, 0.3)
    sample = sample_of(x, y, np.arange(60) < 50)
    sample.steps, sample.partner_steps = np.full(60, 2), np.full(60, 2)
    sample.partner_steps[:20] = 1  # its new_obs is the row's own: no successor of it
    augmentation = StateViews()
    augmentation(sample, rng)
    unmixed = (np.arange(60) < 20) | (np.arange(60) >= 50) | (x[:, -2] > 0) | (y[:, -2] > 0)
    np.testing.assert_array_equal(sample.rows[unmixed], x[unmixed])
    assert (sample.rows[~unmixed, 0] != x[~unmixed, 0]).all()
    assert (sample.rows[~unmixed, 6] != x[~unmixed, 6]).all()
    assert 0 < unmixed.sum() < 60
    assert augmentation.stats()["mixed_fraction"] == pytest.approx((~unmixed).mean())


def test_s4rl_views_of_the_same_row_are_mixed_with_shares_of_their_own():
    before, after = viewed("mixup", count=50, views=3)
    assert after.shape == (150, SCHEMA.width)
    assert len(np.unique(after[[0, 50, 100], 0])) == 3
    lam = (after[:, :3] - before[:, 6:9]) / (before[:, :3] - before[:, 6:9])
    later = np.float32([100, 200, 400])  # s_t+2 of `viewed`
    expected = later + lam[:, :1] * (before[:, 6:9] - later)
    np.testing.assert_allclose(after[:, 6:9], expected, rtol=1e-4)


@pytest.mark.parametrize(
    ("options", "message"), [({"view": "blur"}, "--s4rl_view"), ({"views": 0}, "--s4rl_num_views")]
)
def test_s4rl_settings_out_of_range_are_refused(options, message):
    with pytest.raises(ReplayError, match=message):
        StateViews(**options)
