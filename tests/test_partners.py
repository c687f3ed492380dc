import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import NearestNeighbors

from replay_buffers.errors import ReplayError
from replay_buffers.neighbors import ExactNeighbors, feature_scale
from replay_buffers.partners import FollowingPartner, NearestPartner, RandomPartner
from replay_buffers.storage import Schema, Storage


def stored(features, capacity=None):
    """A storage whose (obs, action) features are the given columns, the last one the action."""
    features = np.asarray(features, np.float32)
    schema = Schema(features.shape[1] - 1, 1)
    storage = Storage(schema, capacity or len(features))
    obs, action = features[:, :-1], features[:, -1:]
    count = len(features)
    rows = schema.pack(obs, action, np.zeros(count), obs, np.zeros(count), np.zeros(count))
    storage.add(rows, np.zeros(count, int), np.arange(count))
    return storage


def random_features(rng, count, dims, scale=True):
    features = rng.normal(size=(count, dims))
    features[:, :-1] *= 10.0 ** rng.uniform(-2, 3, dims - 1) if scale else 1
    features[:, -1] = rng.uniform(-1, 1, count)
    return features


@settings(max_examples=40, deadline=None)
@given(
    count=st.integers(2, 300),
    dims=st.integers(2, 9),
    k=st.integers(1, 12),
    duplicates=st.integers(0, 30),
    seed=st.integers(0, 10_000),
)
def test_neighbors_are_those_of_scikit_learn(count, dims, k, duplicates, seed):
    rng = np.random.default_rng(seed)
    features = random_features(rng, count, dims)
    features[rng.integers(count, size=duplicates)] = features[0]
    storage = stored(features)
    every = np.arange(count)
    ids, distances = ExactNeighbors(storage, k).query(every)

    std = storage.rows[:, :dims].astype(np.float64).std(0)
    scaled = storage.rows[:, :dims] / np.where(
        std > 1e-6 * np.abs(features).max(0).clip(1), std, np.inf
    )
    wanted = min(k, count - 1)
    # kneighbors() without arguments leaves each point itself out.
    reference, _ = NearestNeighbors(n_neighbors=wanted, algorithm="brute").fit(scaled).kneighbors()
    np.testing.assert_allclose(distances[:, :wanted], reference, rtol=1e-6, atol=1e-6)
    # The ids are really at those distances, are not the row itself, and are all different.
    true = np.linalg.norm(scaled[ids[:, :wanted]] - scaled[:, None], axis=2)
    np.testing.assert_allclose(true, distances[:, :wanted], rtol=1e-6, atol=1e-6)
    assert (ids[:, :wanted] != every[:, None]).all()
    assert all(len(set(row)) == wanted for row in ids[:, :wanted])
    assert (ids[:, wanted:] == -1).all()
    assert np.isinf(distances[:, wanted:]).all()


def test_more_rows_than_a_block_and_more_queries_than_a_chunk():
    rng = np.random.default_rng(0)
    storage = stored(random_features(rng, 9000, 4))
    positions = rng.integers(9000, size=700)
    ids, distances = ExactNeighbors(storage, 5).query(positions)
    scaled = storage.rows[:, :4].astype(np.float64) * feature_scale(storage)
    reference, found = (
        NearestNeighbors(n_neighbors=6, algorithm="brute").fit(scaled).kneighbors(scaled[positions])
    )
    np.testing.assert_allclose(distances, reference[:, 1:], rtol=1e-6, atol=1e-9)
    np.testing.assert_array_equal(np.sort(ids), np.sort(found[:, 1:]))


def test_neighbors_follow_the_ring_when_it_overwrites():
    rng = np.random.default_rng(0)
    features = random_features(rng, 50, 3, scale=False)
    storage = stored(features, capacity=20)  # only the last 20 of the 50 are left
    ids, _ = ExactNeighbors(storage, 3).query(np.arange(20))
    fresh = stored(features[-20:])
    moved = (np.arange(20) + 50) % 20  # position in the ring -> position in the fresh storage
    expected, _ = ExactNeighbors(fresh, 3).query(np.argsort(np.arange(30, 50) % 20))
    np.testing.assert_array_equal(np.sort((ids - 30) % 20), np.sort(expected))
    assert moved.shape == (20,)


def test_a_dimension_without_variance_does_not_decide():
    rng = np.random.default_rng(0)
    features = random_features(rng, 60, 3, scale=False)
    constant = np.full((60, 1), 1e4)
    noisy = 1e4 + rng.normal(size=(60, 1)) * 1e-3  # varies by float32's rounding only
    plain, _ = ExactNeighbors(stored(features), 4).query(np.arange(60))
    for column in (constant, noisy):
        extended = np.concatenate([column, features], axis=1)
        ids, _ = ExactNeighbors(stored(extended), 4).query(np.arange(60))
        np.testing.assert_array_equal(ids, plain)


def test_zero_neighbors_are_refused():
    with pytest.raises(ReplayError, match="--kneighbors"):
        ExactNeighbors(stored([[0, 0], [1, 0]]), 0)


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 60), st.integers(1, 70), st.integers(0, 100))
def test_the_nearest_partner_is_one_of_the_k_nearest_and_all_of_them_get_drawn(count, k, seed):
    rng = np.random.default_rng(seed)
    storage = stored(random_features(rng, count, 3))
    neighbors = ExactNeighbors(storage, k)
    partner = NearestPartner(neighbors)
    positions = np.zeros(2000, int)
    drawn = partner(positions, rng)
    allowed = set(neighbors.query(np.array([0]))[0][0]) - {-1}
    assert set(drawn) <= allowed
    assert 0 not in drawn
    assert len(set(drawn)) == len(allowed)  # missing one of up to 59 in 2000 draws: p < 1e-13
    assert partner.stats()["mean_neighbor_distance"] > 0
    assert partner.stats() == {}


@given(st.integers(2, 12), st.integers(0, 50))
def test_a_random_partner_is_any_other_row(count, seed):
    rng = np.random.default_rng(seed)
    storage = stored(random_features(rng, count, 2))
    positions = rng.integers(count, size=3000)
    drawn = RandomPartner(storage)(positions, rng)
    assert (drawn != positions).all()
    for row in range(count):
        assert set(drawn[positions == row]) == set(range(count)) - {row}


def test_a_lonely_row_has_no_partner():
    storage = stored([[0.5, 0]])
    rng = np.random.default_rng(0)
    lonely = np.zeros(5, int)
    assert (RandomPartner(storage)(lonely, rng) == -1).all()
    assert (NearestPartner(ExactNeighbors(storage, 3))(lonely, rng) == -1).all()
    assert (FollowingPartner(storage)(lonely, rng) == -1).all()


def test_the_following_partner_is_the_next_step_of_the_episode():
    storage = stored([[0, 0], [1, 0], [2, 0]])
    rng = np.random.default_rng(0)
    assert FollowingPartner(storage)(np.array([0, 1, 2, 0]), rng).tolist() == [1, 2, -1, 1]
