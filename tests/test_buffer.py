import subprocess
import sys

import numpy as np
import pytest

from replay_buffers import CATALOG, ReplayBuffer
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
    shapes = {key: value.shape for key, value in batch.items()}
    assert shapes == {
        "obs": (32, 3),
        "actions": (32, 2),
        "rewards": (32,),
        "new_obs": (32, 3),
        "terminateds": (32,),
        "truncateds": (32,),
        "weights": (32,),
        "numbers": (32,),
    }
    assert all(value.dtype == np.float32 for key, value in batch.items() if key != "numbers")
    assert np.abs(batch["actions"]).max() <= 1


@pytest.mark.parametrize(("name", "prioritized"), EVERY)
def test_every_line_of_the_catalog_survives_a_round_trip(name, prioritized):
    original = filled(name, prioritized)
    first = original.sample(32)
    original.update(first["numbers"], np.linspace(0, 3, 32))
    copy = ReplayBuffer.from_catalog(
        name, obs_dim=3, action_dim=2, capacity=64, seed=99, prioritized=prioritized
    )
    copy.set_state(original.get_state())
    for buffer in (original, copy):
        feed(buffer, 5, np.random.default_rng(1))
    for _ in range(3):
        mine, theirs = original.sample(32), copy.sample(32)
        for key in mine:
            np.testing.assert_array_equal(mine[key], theirs[key])
        for buffer, batch in ((original, mine), (copy, theirs)):
            buffer.update(batch["numbers"], batch["rewards"])
    keys = ("size", "added", "sampled")
    assert {k: original.stats()[k] for k in keys} == {k: copy.stats()[k] for k in keys}


@pytest.mark.parametrize("name", CATALOG)
def test_a_seed_determines_every_batch(name):
    one, two, other = filled(name, seed=5), filled(name, seed=5), filled(name, seed=6)
    batches = [buffer.sample(64) for buffer in (one, two, other)]
    np.testing.assert_array_equal(batches[0]["obs"], batches[1]["obs"])
    assert (batches[0]["obs"] != batches[2]["obs"]).any()


@pytest.mark.parametrize("name", ["mixup", "nmer"])
def test_recipes_that_mix_make_new_rows_and_vanilla_does_not(name):
    def invented(buffer):
        stored = {row.tobytes() for row in buffer.storage.rows}
        batch = buffer.sample(64)
        positions = batch["numbers"] % 64
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
    assert invented(filled(name, prob_interpolation=0.0)) == 0


def test_only_plain_per_is_weighted_unless_asked():
    def weights(name, **settings):
        buffer = filled(name, prioritized=True, **settings)
        buffer.update(buffer.sample(64)["numbers"], np.linspace(0, 5, 64))
        return buffer.sample(64)["weights"]

    assert (weights("nmer") == 1).all()
    assert (weights("nmer", use_importance_sampling=True) < 1).any()
    assert (weights("per") < 1).any()
    assert (weights("vanilla") < 1).any()


def test_a_td_error_goes_to_the_sampled_row():
    buffer = filled("nmer", prioritized=True, capacity=64, count=64, per_alpha=1.0)
    buffer.update(np.arange(64), np.zeros(64))
    buffer.update(np.array([11]), np.array([10.0]))
    drawn = buffer.sample(500)["numbers"]
    assert (drawn == 11).mean() > 0.99


def test_numbers_say_which_rows_were_drawn_past_capacity():
    buffer = filled("vanilla", capacity=16, count=100)
    batch = buffer.sample(50)
    assert batch["numbers"].min() >= 84
    np.testing.assert_array_equal(buffer.storage.rows[batch["numbers"] % 16, :3], batch["obs"])


def test_sampling_an_empty_buffer_is_an_error():
    with pytest.raises(ReplayError, match="empty"):
        ReplayBuffer.from_catalog("vanilla", obs_dim=1, action_dim=1, capacity=4).sample(1)


def test_an_unknown_recipe_names_the_known_ones():
    with pytest.raises(ReplayError, match="vanilla, per, gaussian, mixup, nmer"):
        ReplayBuffer.from_catalog("her", obs_dim=1, action_dim=1, capacity=4)


def test_a_state_of_another_recipe_is_refused():
    with pytest.raises(ReplayError, match="same --buffer"):
        filled("nmer").set_state(filled("vanilla").get_state())


def test_the_catalog_needs_neither_torch_nor_ray():
    code = "import sys, replay_buffers; replay_buffers.CATALOG['nmer']; print('torch' in sys.modules, 'ray' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["False", "False"]
