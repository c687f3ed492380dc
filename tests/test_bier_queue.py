"""Synthetic rows made in advance, and buffers that continue where their state was taken."""

import numpy as np
import pytest

from replay_buffers.errors import ReplayError
from replay_buffers.gaussian_process.queue import DEPTH
from tests.bier_buffers import FAST, SHARED, add, filled


def queue_of(buffer):
    return buffer.augmentation._queue


def test_rows_made_in_advance_are_posteriors_too_and_each_is_used_once():
    buffer = filled(40, **FAST, use_queue=True)
    batches = [buffer.sample(64) for _ in range(6)]
    features = np.concatenate([np.concatenate([b["obs"], b["actions"]], axis=1) for b in batches])
    numbers = np.concatenate([b["receipt"].numbers for b in batches])
    rewards = np.concatenate([b["rewards"] for b in batches])
    assert len(np.unique(features, axis=0)) == len(features)
    lists, _ = buffer.partner.neighbors.query(numbers)
    rows = buffer.augmentation._rows
    made = filled(40, **FAST).augmentation._synthesizer(
        rows.regression(numbers, lists), features[:, None], np.random.default_rng(0)
    )
    np.testing.assert_allclose(rewards, made.outcome[:, 0, 0], atol=1e-5)
    figures = buffer.stats()
    assert figures["gp_queue_rows"] == 40
    assert figures["gp_queue_hits"] == pytest.approx(1 - 1 / DEPTH, abs=0.08)
    assert figures["mean_lam"] == pytest.approx(0.5, abs=0.1)
    assert "gp_queue_hits" not in filled(**FAST).stats()


def test_a_queue_is_made_again_when_its_neighbourhood_changes_and_only_then():
    buffer = filled(40, **FAST, use_queue=True)
    buffer.sample(400)
    buffer.stats()
    made = []
    fill = buffer.augmentation._synthesizer.fill
    buffer.augmentation._synthesizer.fill = lambda own, *rest: made.extend(own) or fill(own, *rest)
    queue_of(buffer)._used[:] = 0
    everyone = np.arange(40)
    before, _ = buffer.partner.neighbors.query(everyone)
    buffer.sample(60)
    assert made == []
    add(buffer, 1, seed=3)
    after, _ = buffer.partner.neighbors.query(everyone)
    changed = set(np.flatnonzero((before != after).any(axis=1))) | {40}
    assert 0 < len(changed) < 30
    queue_of(buffer)._used[:] = 0
    drawn = set(buffer.sample(200)["receipt"].numbers)
    assert set(made) == drawn & changed


def test_new_hyperparameters_empty_all_queues():
    buffer = filled(60, use_queue=True, retrain_interval=5, **SHARED)
    buffer.sample(400)
    queue_of(buffer)._used[:] = 0
    buffer.stats()
    buffer.augmentation._surrogate._next_fit = 0
    buffer.sample(50)
    distinct = buffer.stats()
    assert distinct["gp_fits"] == 1
    assert distinct["gp_queue_hits"] < 0.5


def test_queues_stay_within_their_memory_and_the_oldest_gives_way():
    small = filled(120, **FAST, use_queue=True, queue_gb=2e-5)
    slots = len(queue_of(small)._owner)
    arrays = ("_rows", "_hyperparameters", "_owner", "_number", "_token", "_used")
    assert sum(getattr(queue_of(small), a).nbytes for a in arrays) <= 2e-5 * 1e9
    assert 5 < slots < 40
    plain = filled(120, **FAST)
    extra = small.stats()["bytes"] - plain.stats()["bytes"]
    assert extra == sum(getattr(queue_of(small), a).nbytes for a in (*arrays, "_slot"))
    for _ in range(5):
        batch = small.sample(256)  # more rows than there are queues
        assert np.isfinite(batch["rewards"]).all()
    assert small.stats()["gp_queue_rows"] == slots
    owners = queue_of(small)._owner
    np.testing.assert_array_equal(queue_of(small)._slot[owners], np.arange(slots))
    roomy = filled(120, **FAST, use_queue=True)
    assert len(queue_of(roomy)._owner) == 200
    # A buffer that overwrites its rows gives their queues to the new ones.
    add(roomy, 300)
    numbers = roomy.sample(256)["receipt"].numbers
    np.testing.assert_array_equal(
        queue_of(roomy)._number[queue_of(roomy)._slot[numbers % 200]], numbers
    )


def test_rows_keep_their_hyperparameters_and_tune_them_when_their_neighbourhood_changes():
    own = {"kernel": "rbf", "gpytorch": True, "use_queue": True, "update_hyperparams": True}
    buffer = filled(40, **own)
    calls, fit = [], buffer.augmentation._surrogate.fit

    def spy(data, start=None, epochs=None):
        calls.append((len(data), start is not None, epochs))
        return fit(data, start, epochs)

    spy.start = fit.start
    buffer.augmentation._surrogate.fit = spy
    buffer.sample(500)  # everyone, more than once around
    assert [call for call in calls if call[1]] == []
    assert sum(call[0] for call in calls) == 40
    kept = queue_of(buffer)._hyperparameters.copy()
    assert (kept[:40] != 0).any()
    calls.clear()
    queue_of(buffer)._used[:] = DEPTH
    buffer.sample(500)
    assert calls == []  # refilled without a fit
    np.testing.assert_array_equal(queue_of(buffer)._hyperparameters, kept)
    add(buffer, 1, seed=3)
    buffer.sample(500)
    assert (1, False, None) in calls  # the new row, from scratch
    tuned = [call for call in calls if call[1]]
    assert tuned
    assert all(call[2] == 1 for call in tuned)
    changed = (queue_of(buffer)._hyperparameters[:40] != kept[:40]).any(axis=1)
    assert changed.sum() == sum(call[0] for call in tuned)


@pytest.mark.parametrize(
    "settings",
    [
        {**FAST, "use_queue": True},
        {**FAST, "use_queue": True, "queue_gb": 2e-5},
        {"kernel": "rbf", "gpytorch": True, "use_queue": True, "update_hyperparams": True},
        {**SHARED, "retrain_interval": 7, "warmstart_global": True},
        {**FAST, "single_model": True, "sample_gp_cov": True, "retrain_interval": 7},
    ],
)
def test_a_buffer_continues_where_its_state_was_taken(settings):
    original = filled(60, **settings)
    original.sample(100)
    copy = filled(0, seed=99, **settings)
    copy.set_state(original.get_state())
    for _ in range(4):
        one, two = (buffer.sample(40) for buffer in (original, copy))
        for name in ("obs", "rewards", "new_obs"):
            np.testing.assert_array_equal(one[name], two[name])
        for buffer in (original, copy):
            add(buffer, 3)


@pytest.mark.parametrize("flag", ["interp_prio_update", "use_importance_sampling"])
def test_a_queue_cannot_share_priorities(flag):
    with pytest.raises(ReplayError, match=f"drop .*--{flag}"):
        filled(0, prioritized=True, use_queue=True, **{flag: True}, **FAST)
