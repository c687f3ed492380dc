import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay_buffers.errors import ReplayError
from replay_buffers.samplers import PrioritizedSampler, UniformSampler
from replay_buffers.storage import Schema, Storage
from replay_buffers.trees import WideTree

SCHEMA = Schema(1, 1)


def add(storage, sampler, count):
    rows = np.zeros((count, SCHEMA.width), np.float32)
    sampler.added(storage.add(rows, np.zeros(count, int), np.arange(count)))


def test_uniform_covers_every_row_equally():
    storage = Storage(SCHEMA, 10)
    sampler = UniformSampler(storage)
    add(storage, sampler, 4)
    drawn = sampler.sample(40_000, np.random.default_rng(0))
    counts = np.bincount(drawn, minlength=10)
    # A binomial count's standard deviation is 87 here; 5 of them.
    assert np.abs(counts[:4] - 10_000).max() < 435
    assert counts[4:].sum() == 0


@given(st.integers(1, 5000), st.data())
def test_tree_root_is_the_reduction_of_its_leaves(size, data):
    tree, low = WideTree(size, np.add, 0.0), WideTree(size, np.minimum, np.inf)
    leaves = {}
    for _ in range(3):
        positions = data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=20))
        values = data.draw(
            st.lists(st.floats(1e-6, 1e6), min_size=len(positions), max_size=len(positions))
        )
        for t in (tree, low):
            t.set(np.array(positions), np.array(values))
        leaves.update(zip(positions, values, strict=True))
    assert tree.root == pytest.approx(sum(leaves.values()), rel=1e-12)
    assert low.root == min(leaves.values())


@given(st.lists(st.sampled_from([0.0, 1e-9, 1.0, 3.0, 1e9]), min_size=1, max_size=300).filter(any))
def test_tree_finds_the_leaf_whose_share_a_target_falls_in(values):
    tree = WideTree(len(values), np.add, 0.0)
    tree.set(np.arange(len(values)), np.array(values))
    starts = np.concatenate([[0], np.cumsum(values)[:-1]])
    wide = [i for i, v in enumerate(values) if v >= 1e-6 * tree.root]  # wider than rounding
    middles = np.array([starts[i] + values[i] / 2 for i in wide])
    assert tree.find(middles).tolist() == wide
    # The very ends, and past them, still land on a leaf with a share.
    edges = tree.find(np.array([0.0, tree.root, np.nextafter(tree.root, np.inf)]))
    assert all(values[i] > 0 for i in edges)


@given(
    capacity=st.integers(1, 200),
    steps=st.lists(st.tuples(st.integers(1, 90), st.integers(0, 40)), min_size=1, max_size=6),
    alpha=st.sampled_from([0.0, 0.6, 1.0]),
    beta=st.sampled_from([0.0, 0.4, 1.0]),
    seed=st.integers(0, 1000),
)
def test_probabilities_and_weights_follow_the_formula(capacity, steps, alpha, beta, seed):
    rng = np.random.default_rng(seed)
    storage = Storage(SCHEMA, capacity)
    sampler = PrioritizedSampler(storage, alpha=alpha, beta=beta, final_beta=beta)
    priority, largest = {}, 1.0
    for added, updated in steps:
        first = storage.written
        add(storage, sampler, added)
        priority.update(dict.fromkeys(range(first, first + added), largest))
        alive = range(max(0, storage.written - capacity), storage.written)
        numbers = rng.integers(0, storage.written, updated)  # some of them overwritten by now
        errors = rng.exponential(2.0, updated)
        sampler.update(numbers, errors)
        for number, error in zip(numbers, errors, strict=True):
            if number in alive:
                priority[number] = error + 1e-6
                largest = max(largest, error + 1e-6)
    size = len(storage)
    positions = np.array([n % capacity for n in alive])
    powers = np.array([priority[n] ** alpha for n in alive])
    expected = powers / powers.sum()
    np.testing.assert_allclose(sampler.probabilities(positions), expected, rtol=1e-9)
    weights = (size * expected) ** -beta
    np.testing.assert_allclose(sampler.weights(positions), weights / weights.max(), rtol=1e-5)
    assert set(sampler.sample(200, rng)) <= set(positions)


def test_draws_are_proportional_to_priorities():
    storage = Storage(SCHEMA, 4)
    sampler = PrioritizedSampler(storage, alpha=1.0)
    add(storage, sampler, 4)
    sampler.update(np.arange(4), np.array([0.0, 1.0, 2.0, 5.0]))
    counts = np.bincount(sampler.sample(80_000, np.random.default_rng(1)), minlength=4)
    np.testing.assert_allclose(counts / 80_000, [0, 1 / 8, 2 / 8, 5 / 8], atol=0.009)


def test_beta_moves_with_the_rows_added_and_stops_at_the_budget():
    storage = Storage(SCHEMA, 100)
    sampler = PrioritizedSampler(storage, beta=0.4, final_beta=1.0, anneal_rows=20)
    betas = [sampler.beta]
    for _ in range(3):
        add(storage, sampler, 10)
        betas.append(sampler.beta)
    assert betas == pytest.approx([0.4, 0.7, 1.0, 1.0])


def test_a_priority_for_an_overwritten_row_is_dropped():
    storage = Storage(SCHEMA, 3)
    sampler = PrioritizedSampler(storage, alpha=1.0)
    add(storage, sampler, 3)
    add(storage, sampler, 1)  # number 3 now lives where number 0 did
    sampler.update(np.array([0]), np.array([100.0]))
    np.testing.assert_allclose(sampler.probabilities(np.arange(3)), 1 / 3)
    sampler.update(np.array([3]), np.array([100.0]))
    assert sampler.probabilities(np.array([0])) > 0.9


def test_a_td_error_that_is_not_finite_is_an_error():
    storage = Storage(SCHEMA, 3)
    sampler = PrioritizedSampler(storage)
    add(storage, sampler, 3)
    with pytest.raises(ReplayError, match="diverged"):
        sampler.update(np.array([0]), np.array([np.nan]))


def test_state_round_trip():
    storage = Storage(SCHEMA, 300)
    sampler = PrioritizedSampler(storage)
    add(storage, sampler, 200)
    sampler.update(np.arange(50), np.linspace(0, 9, 50))
    copy = PrioritizedSampler(storage)
    copy.set_state(sampler.get_state())
    every = np.arange(200)
    np.testing.assert_array_equal(copy.probabilities(every), sampler.probabilities(every))
    np.testing.assert_array_equal(copy.weights(every), sampler.weights(every))
    for s in (copy, sampler):
        add(storage, s, 1)
    assert copy.stats() == sampler.stats()


def test_an_earlier_state_is_restored_into_a_sampler_that_went_on():
    storage = Storage(SCHEMA, 300)
    sampler = PrioritizedSampler(storage)
    add(storage, sampler, 20)
    saved, rows = sampler.get_state(), storage.get_state()
    add(storage, sampler, 200)
    storage.set_state(rows)
    sampler.set_state(saved)
    assert sampler.sample(500, np.random.default_rng(0)).max() < 20
    np.testing.assert_allclose(sampler.probabilities(np.arange(20)), 1 / 20)


@pytest.mark.parametrize("options", [{"alpha": -1}, {"beta": 1.5}, {"final_beta": -0.1}])
def test_exponents_outside_their_range_are_refused(options):
    with pytest.raises(ReplayError, match="between 0 and 1"):
        PrioritizedSampler(Storage(SCHEMA, 3), **options)
