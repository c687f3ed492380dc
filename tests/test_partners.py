import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import NearestNeighbors

from replay_buffers.errors import ReplayError
from replay_buffers.neighbor_table import NeighborTable, table_bytes
from replay_buffers.neighbors import ExactNeighbors, Metric
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
    scaled = storage.rows[:, :4].astype(np.float64) * Metric.of(storage).factor
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


@pytest.mark.parametrize("kind", [ExactNeighbors, NeighborTable])
def test_zero_neighbors_are_refused(kind):
    with pytest.raises(ReplayError, match="--kneighbors"):
        kind(stored([[0, 0], [1, 0]]), 0)


@settings(max_examples=60, deadline=None)
@given(
    capacity=st.integers(2, 150),
    dims=st.integers(2, 6),
    k=st.integers(1, 12),
    slack=st.integers(0, 8),
    duplicates=st.booleans(),
    constant=st.booleans(),
    rounds=st.lists(
        st.tuples(st.integers(0, 60), st.integers(1, 40), st.floats(0.2, 5)),
        min_size=1,
        max_size=12,
    ),
    seed=st.integers(0, 10_000),
)
def test_the_table_is_exact_after_any_adds_evictions_and_rescales(
    capacity, dims, k, slack, duplicates, constant, rounds, seed
):
    rng = np.random.default_rng(seed)
    schema = Schema(dims - 1, 1)
    storage = Storage(schema, capacity)
    table = NeighborTable(storage, k, slack=slack)
    for added, asked, stretch in rounds:
        features = random_features(rng, added + 1, dims, scale=False)
        features[:, :-1] *= stretch  # the scale moves as rounds go by
        if duplicates:
            features[: added // 2] = features[-1]
        if constant:
            features[:, 0] = 3.0
        count = len(features)
        obs, action = features[:, :-1], features[:, -1:]
        rows = schema.pack(obs, action, np.zeros(count), obs, np.zeros(count), np.zeros(count))
        storage.add(rows, np.zeros(count, int), np.arange(count))
        positions = rng.integers(len(storage), size=asked)
        ids, distances = table.query(positions)

        wanted = min(k, len(storage) - 1)
        assert (ids[:, wanted:] == -1).all()
        if wanted == 0:
            continue
        # The frozen scale is within its tolerance of today's at every check.
        scaled = storage.rows[: len(storage), :dims].astype(np.float64) * table._metric.factor
        every = np.linalg.norm(scaled[positions][:, None] - scaled[None], axis=2)
        every[np.arange(asked), positions] = np.inf
        expected = np.sort(every, axis=1)[:, :wanted]
        np.testing.assert_allclose(distances[:, :wanted], expected, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(
            np.take_along_axis(every, ids[:, :wanted], 1), expected, rtol=1e-6, atol=1e-6
        )
        assert (ids[:, :wanted] != positions[:, None]).all()
        assert all(len(set(row)) == wanted for row in ids[:, :wanted])


def test_the_table_refreshes_its_scale_when_a_deviation_has_moved():
    storage = Storage(Schema(1, 1), 1000)
    table = NeighborTable(storage, 3)

    def add(values):
        count = len(values)
        features = np.asarray(values)[:, None]
        rows = storage.schema.pack(
            features,
            np.zeros((count, 1)),
            np.zeros(count),
            features,
            np.zeros(count),
            np.zeros(count),
        )
        storage.add(rows, np.zeros(count, int), np.arange(count))
        table.query(np.array([0]))
        return table._metric.factor[0]

    rng = np.random.default_rng(0)
    first = add(rng.normal(size=400))
    assert first == pytest.approx(1 / storage.rows[:400, 0].std(), rel=1e-6)
    assert add(rng.normal(size=100)) == first  # drifts by less than 5 %
    moved = add(rng.normal(size=100) * 5)
    assert moved == pytest.approx(1 / storage.rows[:600, 0].std(), rel=1e-6)
    assert table.stats()["neighbor_scale_refreshes"] == 2


def test_the_table_searches_a_row_once_and_then_keeps_up():
    rng = np.random.default_rng(0)
    storage = stored(random_features(rng, 3000, 5, scale=False), capacity=4000)
    table = NeighborTable(storage, 10)
    everyone = np.arange(3000)
    table.query(everyone)
    assert table.stats()["neighbor_searches_per_query"] == 1
    for _ in range(20):
        fresh = random_features(rng, 10, 5, scale=False)
        rows = storage.schema.pack(
            fresh[:, :-1], fresh[:, -1:], np.zeros(10), fresh[:, :-1], np.zeros(10), np.zeros(10)
        )
        storage.add(rows, np.zeros(10, int), np.arange(10))
        table.query(everyone)
    figures = table.stats()
    assert figures["neighbor_searches_per_query"] == 0
    assert figures["neighbor_list_age"] == 10
    assert figures["mean_kth_distance"] > 0


def test_the_table_states_its_bytes_and_comes_back_with_its_scale():
    rng = np.random.default_rng(0)
    storage = stored(random_features(rng, 200, 3))
    table = NeighborTable(storage, 5)
    arrays = (table._ids, table._squares, table._radius, table._seen, table._owner)
    assert sum(a.nbytes for a in arrays) == table_bytes(200, 5)
    before = table.query(np.arange(200))
    copy = NeighborTable(storage, 5)
    copy.set_state(table.get_state())
    after = copy.query(np.arange(200))
    np.testing.assert_array_equal(before[0], after[0])
    assert copy.stats()["neighbor_scale_refreshes"] == 1


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


def test_the_furthest_neighbor_bounds_the_rank_that_is_drawn():
    storage = stored(random_features(np.random.default_rng(0), 50, 3))
    neighbors = ExactNeighbors(storage, 10)
    ranked = neighbors.query(np.array([7]))[0][0]
    drawn = NearestPartner(neighbors, furthest=4)(np.full(500, 7), np.random.default_rng(1))
    assert set(drawn) == set(ranked[:4])
    drawn = NearestPartner(neighbors, furthest=-1)(np.full(500, 7), np.random.default_rng(1))
    assert set(drawn) == set(ranked)
    for wrong in (0, -2):
        with pytest.raises(ReplayError, match="--furthest_neighbor"):
            NearestPartner(neighbors, furthest=wrong)


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
