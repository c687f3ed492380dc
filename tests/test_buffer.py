import subprocess
import sys

import numpy as np
import pytest

from replay_buffers import CATALOG, ReplayBuffer
from replay_buffers.buffer import Receipt
from replay_buffers.errors import ReplayError

EVERY = [(name, prioritized) for name in CATALOG for prioritized in (False, True)]


def filled(name, prioritized=False, capacity=64, count=100, seed=0, **settings):
    buffer = ReplayBuffer.from_catalog(
        name,
        obs_dim=3,
        action_dim=2,
        capacity=capacity,
        seed=seed,
        prioritized=prioritized,
        **settings,
    )
    feed(buffer, count, np.random.default_rng(7))
    return buffer


def feed(buffer, count, rng):
    first = buffer.storage.written
    numbers = np.arange(first, first + count)
    rows = buffer.schema.pack(
        rng.normal(size=(count, 3)),
        rng.uniform(-1, 1, (count, 2)),
        rng.normal(size=count),
        rng.normal(size=(count, 3)),
        numbers % 10 == 9,
        np.zeros(count),
    )
    buffer.add(rows, numbers // 10, numbers % 10)


@pytest.mark.parametrize(("name", "prioritized"), EVERY)
def test_every_line_of_the_catalog_gives_batches_of_the_right_shape(name, prioritized):
    batch = filled(name, prioritized).sample(32)
    receipt = batch.pop("receipt")
    shapes = {key: value.shape for key, value in batch.items()}
    assert shapes == {
        "obs": (32, 3),
        "actions": (32, 2),
        "rewards": (32,),
        "new_obs": (32, 3),
        "terminateds": (32,),
        "truncateds": (32,),
        "weights": (32,),
    }
    assert all(value.dtype == np.float32 for value in batch.values())
    assert len(receipt.numbers) == 32
    assert np.abs(batch["actions"]).max() <= 1


@pytest.mark.parametrize(("name", "prioritized"), EVERY)
def test_every_line_of_the_catalog_survives_a_round_trip(name, prioritized):
    original = filled(name, prioritized)
    first = original.sample(32)
    original.update(first["receipt"], np.linspace(0, 3, 32))
    copy = ReplayBuffer.from_catalog(
        name, obs_dim=3, action_dim=2, capacity=64, seed=99, prioritized=prioritized
    )
    copy.set_state(original.get_state())
    for buffer in (original, copy):
        feed(buffer, 5, np.random.default_rng(1))
    for _ in range(3):
        mine, theirs = original.sample(32), copy.sample(32)
        receipts = [batch.pop("receipt") for batch in (mine, theirs)]
        np.testing.assert_array_equal(receipts[0].numbers, receipts[1].numbers)
        for key in mine:
            np.testing.assert_array_equal(mine[key], theirs[key])
        for buffer, receipt, batch in zip((original, copy), receipts, (mine, theirs), strict=True):
            buffer.update(receipt, batch["rewards"])
    keys = ("size", "added", "sampled")
    assert {k: original.stats()[k] for k in keys} == {k: copy.stats()[k] for k in keys}


@pytest.mark.parametrize("name", CATALOG)
def test_a_seed_determines_every_batch(name):
    one, two, other = filled(name, seed=5), filled(name, seed=5), filled(name, seed=6)
    batches = [buffer.sample(64) for buffer in (one, two, other)]
    np.testing.assert_array_equal(batches[0]["obs"], batches[1]["obs"])
    assert (batches[0]["obs"] != batches[2]["obs"]).any()


def test_several_views_come_contiguous_by_view():
    buffer = filled("s4rl", prioritized=True, s4rl_num_views=3, s4rl_view="gaussian", n_step=2)
    batch = buffer.sample(16)
    receipt = batch.pop("receipt")
    assert buffer.views == 3
    assert len(receipt.numbers) == 16
    assert {len(value) for value in batch.values()} == {48}
    for name in ("actions", "rewards", "terminateds", "n_step", "weights"):
        np.testing.assert_array_equal(batch[name][:16], batch[name][32:])
    assert (batch["obs"][:16] != batch["obs"][16:32]).any()
    np.testing.assert_allclose(batch["obs"][:16], batch["obs"][16:32], atol=5e-3)
    buffer.update(receipt, np.ones(16))


@pytest.mark.parametrize("truncated", [False, True])
@pytest.mark.parametrize("n", [1, 2])
def test_s4rl_mixes_states_along_the_episode_and_stops_at_its_end(n, truncated):
    # Two episodes of states 0, 1, 4, 9, 16, 25 (+ 100 in the second): no other step has the same
    # difference, so a mixed pair shows between which states it lies.
    buffer = ReplayBuffer.from_catalog("s4rl", obs_dim=1, action_dim=1, capacity=50, n_step=n)
    time = np.arange(5)
    for episode in (0, 1):
        states = np.arange(6.0) ** 2 + 100 * episode
        last = time == 4
        flags = (np.zeros(5), last) if truncated else (last, np.zeros(5))
        rows = buffer.schema.pack(
            states[:5, None], np.zeros((5, 1)), np.ones(5), states[1:, None], *flags
        )
        buffer.add(rows, np.full(5, episode), time)
    batch = buffer.sample(400)
    numbers = batch["receipt"].numbers
    t, base = numbers % 5, 100 * (numbers // 5)
    obs, new_obs = batch["obs"][:, 0] - base, batch["new_obs"][:, 0] - base
    # A row mixes while s_t+n+1 is there, and is not terminal: s_5 alone is.
    mixed = t + n + 1 <= (5 if truncated else 4)
    lam = (obs - (t + 1) ** 2) / (t**2 - (t + 1) ** 2)
    expected = lam * (t + n) ** 2 + (1 - lam) * (t + n + 1) ** 2
    np.testing.assert_allclose(new_obs[mixed], expected[mixed], atol=1e-3)
    np.testing.assert_array_equal(obs[~mixed], t[~mixed] ** 2)
    np.testing.assert_array_equal(new_obs[~mixed], np.minimum(t + n, 5)[~mixed] ** 2)
    assert ((lam[mixed] > 0.01) & (lam[mixed] < 0.99)).any()
    np.testing.assert_array_equal(
        batch["rewards"], np.where(t + n > 5, 1, [1, 1.99][n - 1]).astype(np.float32)
    )


def test_a_mixtures_td_error_is_shared_between_its_parents():
    buffer = filled(
        "mixup", prioritized=True, capacity=4, count=4, per_alpha=1.0, interp_prio_update=True
    )
    start = np.array([1.0, 2.0, 3.0, 4.0])
    buffer.update(Receipt(np.arange(4)), start - 1e-6)
    # Rows 0 and 2, with partners 1 and 3 and lam .25 and 1 (unmixed): worked by hand.
    receipt = Receipt(np.array([0, 2]), np.array([1, 3]), np.array([0.25, 1.0], np.float32))
    buffer.update(receipt, np.array([8.0, 6.0]) - 1e-6)
    after = np.array([0.25 * 8 + 0.75 * 1, 0.75 * 8 + 0.25 * 2, 6.0, 4.0])
    np.testing.assert_allclose(
        buffer.sampler.probabilities(np.arange(4)), after / after.sum(), rtol=1e-6
    )
    sampled = buffer.sample(8)["receipt"]
    assert sampled.partners.shape == sampled.lam.shape == (8,)
    assert filled("mixup", prioritized=True).sample(4)["receipt"].partners is None


def test_recipes_that_learn_or_ask_want_one_batch_at_a_time():
    assert filled("ct").one_at_a_time
    assert not filled("ct", ct_fixed=True).one_at_a_time
    assert not filled("s4rl").one_at_a_time
    assert filled("s4rl", s4rl_view="adversarial").one_at_a_time
    assert filled("vanilla", prioritized=True).one_at_a_time


@pytest.mark.parametrize("name", ["mixup", "nmer"])
def test_recipes_that_mix_make_new_rows_and_vanilla_does_not(name):
    def invented(buffer):
        stored = {row.tobytes() for row in buffer.storage.rows}
        batch = buffer.sample(64)
        positions = batch["receipt"].numbers % 64
        packed = buffer.schema.pack(
            *(
                batch[k]
                for k in ("obs", "actions", "rewards", "new_obs", "terminateds", "truncateds")
            )
        )
        same = [row.tobytes() in stored for row in packed]
        assert all(s for s, p in zip(same, positions, strict=True) if buffer.storage.rows[p, -2])
        return 64 - sum(same)

    assert invented(filled("vanilla")) == 0
    assert invented(filled(name)) > 32
    assert invented(filled(name, interp_decay_rate=0.01)) == 0  # 100 rows were added
    assert invented(filled(name, prob_interpolation=0.0)) == 0


def test_only_plain_per_is_weighted_unless_asked():
    def weights(name, **settings):
        buffer = filled(name, prioritized=True, **settings)
        buffer.update(buffer.sample(64)["receipt"], np.linspace(0, 5, 64))
        return buffer.sample(64)["weights"]

    assert (weights("nmer") == 1).all()
    assert (weights("nmer", use_importance_sampling=True) < 1).any()
    assert (weights("per") < 1).any()
    assert (weights("s4rl") < 1).any()  # its rows have one parent
    assert (weights("vanilla") < 1).any()


def test_a_td_error_goes_to_the_sampled_row():
    buffer = filled("nmer", prioritized=True, capacity=64, count=64, per_alpha=1.0)
    buffer.update(Receipt(np.arange(64)), np.zeros(64))
    buffer.update(Receipt(np.array([11])), np.array([10.0]))
    drawn = buffer.sample(500)["receipt"].numbers
    assert (drawn == 11).mean() > 0.99


def test_numbers_say_which_rows_were_drawn_past_capacity():
    buffer = filled("vanilla", capacity=16, count=100)
    batch = buffer.sample(50)
    assert batch["receipt"].numbers.min() >= 84
    np.testing.assert_array_equal(
        buffer.storage.rows[batch["receipt"].numbers % 16, :3], batch["obs"]
    )


def test_n_step_batches_say_how_far_each_reward_looks():
    buffer = filled("vanilla", capacity=100, count=100, n_step=3, gamma=0.5)
    batch = buffer.sample(200)
    step = buffer.storage.step[batch["receipt"].numbers]  # episodes of 10 steps, terminal at step 9
    np.testing.assert_array_equal(batch["n_step"], np.minimum(3, 10 - step))
    np.testing.assert_array_equal(batch["terminateds"], step >= 7)
    assert "n_step" not in filled("vanilla").sample(4)


def test_rows_that_look_differently_far_are_not_mixed():
    buffer = filled("mixup", capacity=100, count=100, n_step=3)
    buffer.storage.rows[:, -2] = 0  # or the terminals would forbid it anyway
    buffer.partner = lambda positions, rng: np.full(len(positions), 9)  # whose n is 1
    buffer.sample(500)
    n_is_one = (buffer.storage.step == 9).mean()
    assert buffer.augmentation.stats()["mixed_fraction"] == pytest.approx(n_is_one, abs=0.05)


def test_stated_bytes_are_those_of_the_parts():
    buffer = filled("nmer", prioritized=True, capacity=5000, count=10)
    sampler, table = buffer.sampler, buffer.partner.neighbors
    arrays = [buffer.storage.rows, buffer.storage.episode, buffer.storage.step, buffer.storage.next]
    arrays += [sampler._priorities, *sampler._sums._levels, *sampler._minima._levels]
    arrays += [table._ids, table._squares, table._radius, table._seen, table._owner]
    assert buffer.stats()["bytes"] == sum(array.nbytes for array in arrays)


def test_sampling_an_empty_buffer_is_an_error():
    with pytest.raises(ReplayError, match="empty"):
        ReplayBuffer.from_catalog("vanilla", obs_dim=1, action_dim=1, capacity=4).sample(1)


def test_an_unknown_recipe_names_the_known_ones():
    with pytest.raises(ReplayError, match=", ".join(CATALOG)):
        ReplayBuffer.from_catalog("her", obs_dim=1, action_dim=1, capacity=4)


def test_a_state_of_another_recipe_is_refused():
    with pytest.raises(ReplayError, match="same --buffer"):
        filled("nmer").set_state(filled("vanilla").get_state())


def test_the_catalog_needs_neither_torch_nor_ray():
    code = "import sys, replay_buffers; replay_buffers.CATALOG['nmer']; print('torch' in sys.modules, 'ray' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["False", "False"]
