import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replay_buffers import memory
from replay_buffers.errors import ReplayError
from replay_buffers.storage import Schema, Storage

SCHEMA = Schema(obs_dim=2, action_dim=1)


def rows_of(obs, new_obs=None, terminated=0, truncated=0):
    """Rows whose obs (and reward) say which transition they are."""
    obs = np.atleast_2d(np.asarray(obs, np.float32))
    n = len(obs)
    new_obs = obs + np.array([0, 1]) if new_obs is None else new_obs
    return SCHEMA.pack(
        obs,
        np.zeros((n, 1)),
        obs[:, 1],
        new_obs,
        np.broadcast_to(terminated, n),
        np.broadcast_to(truncated, n),
    )


def test_schema_names_the_columns_of_a_packed_row():
    rows = SCHEMA.pack([[1, 2]], [[0.5]], [3], [[4, 5]], [1], [0])
    assert rows.tolist() == [[1, 2, 0.5, 3, 4, 5, 1, 0]]
    columns = SCHEMA.unpack(rows)
    assert {name: column.tolist() for name, column in columns.items()} == {
        "obs": [[1, 2]],
        "actions": [[0.5]],
        "rewards": [3],
        "new_obs": [[4, 5]],
        "terminateds": [1],
        "truncateds": [0],
    }
    assert [SCHEMA.name_of(c) for c in range(SCHEMA.width)] == [
        "obs[0]", "obs[1]", "actions[0]", "rewards", "new_obs[0]", "new_obs[1]", "terminateds", "truncateds",
    ]  # fmt: skip


@given(capacity=st.integers(1, 20), fragments=st.lists(st.integers(0, 30), max_size=12))
def test_ring_holds_exactly_the_last_rows(capacity, fragments):
    storage = Storage(SCHEMA, capacity)
    total = 0
    for size in fragments:
        numbers = np.arange(total, total + size)
        positions = storage.add(
            rows_of(np.stack([numbers, numbers], 1)), numbers, np.zeros(size, int)
        )
        total += size
        assert positions.tolist() == [n % capacity for n in numbers[-capacity:]]
    kept = range(max(0, total - capacity), total)
    assert len(storage) == len(kept)
    for number in kept:
        assert storage.rows[number % capacity, 0] == number
        assert storage.numbers(np.array([number % capacity])) == [number]
    everything = np.arange(-1, total + 2)
    assert storage.alive(everything).tolist() == [n in kept for n in everything]


@st.composite
def lives(draw):
    """Several episodes lived side by side, cut into fragments at random."""
    episodes = draw(st.integers(1, 6))
    lengths = [draw(st.integers(1, 12)) for _ in range(episodes)]
    ends = [
        draw(st.sampled_from(["terminated", "truncated", "abandoned"])) for _ in range(episodes)
    ]
    order = draw(st.permutations([e for e, n in enumerate(lengths) for _ in range(n)]))
    cuts = draw(st.lists(st.integers(0, len(order)), max_size=6))
    return lengths, ends, order, sorted({0, len(order), *cuts})


@given(lives(), st.integers(1, 40))
def test_no_row_joins_two_episodes(life, capacity):
    lengths, ends, order, cuts = life
    storage = Storage(SCHEMA, capacity)
    clock = dict.fromkeys(range(len(lengths)), 0)
    lived = []
    for episode in order:
        step = clock[episode]
        clock[episode] += 1
        last = step == lengths[episode] - 1
        row = rows_of(
            [episode, step],
            None,
            last and ends[episode] == "terminated",
            last and ends[episode] == "truncated",
        )
        lived.append((row[0], episode, step))
    for start, stop in itertools.pairwise(cuts):
        rows, episode, step = zip(*lived[start:stop], strict=True)
        storage.add(np.stack(rows), np.array(episode), np.array(step))
    stored = {(e, s) for _, e, s in lived[-capacity:]}
    for position in range(len(storage)):
        episode, step = int(storage.episode[position]), int(storage.step[position])
        follower = int(storage.successors(np.array([position]))[0])
        ended = step == lengths[episode] - 1 and ends[episode] != "abandoned"
        if (episode, step + 1) in stored and not ended:
            assert (storage.episode[follower], storage.step[follower]) == (episode, step + 1)
            # The successor starts where this row arrived.
            assert storage.rows[follower, :2].tolist() == storage.rows[position, 4:6].tolist()
        else:
            assert follower == -1


@given(lives(), st.integers(1, 40), st.integers(1, 5), st.sampled_from([0.5, 0.99]))
def test_n_step_rows_sum_the_rewards_of_their_own_episode(life, capacity, n, gamma):
    lengths, ends, order, cuts = life
    storage = Storage(SCHEMA, capacity)
    clock = dict.fromkeys(range(len(lengths)), 0)
    lived = []
    for episode in order:
        step = clock[episode]
        clock[episode] += 1
        last = step == lengths[episode] - 1
        flags = (last and ends[episode] == "terminated", last and ends[episode] == "truncated")
        lived.append((rows_of([episode, step], None, *flags)[0], episode, step))
    for start, stop in itertools.pairwise(cuts):
        rows, episode, step = zip(*lived[start:stop], strict=True)
        storage.add(np.stack(rows), np.array(episode), np.array(step))
    kept = {(e, s): row for row, e, s in lived[-capacity:]}
    rows, steps = storage.n_step_rows(np.arange(len(storage)), n, gamma)
    for position in range(len(storage)):
        e, s = int(storage.episode[position]), int(storage.step[position])
        reward, k = 0.0, 0
        while k < n and (e, s + k) in kept:
            row = kept[e, s + k]
            reward += gamma**k * row[3]
            k += 1
            if row[-2] or row[-1]:
                break
        assert steps[position] == k
        assert rows[position, 3] == pytest.approx(reward, rel=1e-5)
        np.testing.assert_array_equal(rows[position, 4:], row[4:])  # arrival and flags of the last
        np.testing.assert_array_equal(rows[position, :3], kept[e, s][:3])


def test_an_id_used_again_does_not_link_to_the_old_episode():
    storage = Storage(SCHEMA, 10)
    storage.add(rows_of([[0, 0], [0, 1]]), np.array([7, 7]), np.array([0, 1]))
    storage.add(rows_of([[1, 0], [1, 1]]), np.array([7, 7]), np.array([0, 1]))
    assert storage.successors(np.arange(4)).tolist() == [1, -1, 3, -1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"obs": [[0, np.nan]]}, r"transition 0 has obs\[1\] = nan"),
        ({"rewards": [np.inf]}, "transition 0 has rewards = inf"),
        ({"actions": [[1.5]]}, "policy space"),
    ],
)
def test_a_row_that_cannot_be_learned_from_is_refused(change, message):
    row = {
        "obs": [[0, 0]],
        "actions": [[0]],
        "rewards": [0],
        "new_obs": [[0, 0]],
        "terminateds": [0],
        "truncateds": [0],
    }
    storage = Storage(SCHEMA, 4)
    with pytest.raises(ReplayError, match=message):
        storage.add(SCHEMA.pack(**{**row, **change}), np.array([0]), np.array([0]))
    assert len(storage) == 0


@pytest.mark.parametrize("capacity", [0, -3])
def test_capacity_must_be_positive(capacity):
    with pytest.raises(ReplayError, match="--buffer_size"):
        Storage(SCHEMA, capacity)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(1, 12))
def test_state_round_trip_continues_identically(fragments, capacity):
    def fill(storage, sizes, total=0):
        for size in sizes:
            steps = np.arange(total, total + size)
            storage.add(rows_of(np.stack([steps * 0, steps], 1)), np.zeros(size, int), steps)
            total += size
        return total

    original, copy = Storage(SCHEMA, capacity), Storage(SCHEMA, capacity)
    total = fill(original, fragments)
    copy.set_state(original.get_state())
    fill(original, [3], total)
    fill(copy, [3], total)
    for mine, theirs in zip(original.get_state().values(), copy.get_state().values(), strict=True):
        np.testing.assert_equal(mine, theirs)


def test_a_state_of_another_shape_is_refused():
    with pytest.raises(ReplayError, match="same --env and --buffer_size"):
        Storage(SCHEMA, 4).set_state(Storage(SCHEMA, 5).get_state())


def test_more_than_the_memory_limit_is_refused_before_allocation(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 10_000)
    Storage(SCHEMA, 100)  # 100 rows x (8 x 4 + 24) bytes
    with pytest.raises(ReplayError, match="0.00 GB are available"):
        Storage(SCHEMA, 1000)


def test_the_tightest_of_cgroup_slurm_and_free_memory_counts(tmp_path, monkeypatch):
    for name in ("SLURM_MEM_PER_NODE", "SLURM_MEM_PER_CPU", "SLURM_CPUS_ON_NODE"):
        monkeypatch.delenv(name, raising=False)
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 64 kB\nMemAvailable: 8000000 kB\n")
    group = tmp_path / "cgroup" / "job" / "step"
    group.mkdir(parents=True)
    (tmp_path / "self").write_text("0::/job/step\n")

    def available():
        return memory.available_bytes(tmp_path / "cgroup", tmp_path / "self", meminfo)

    assert available() == 8_000_000 * 1024
    (group / "memory.max").write_text("max\n")
    assert available() == 8_000_000 * 1024
    (group.parent / "memory.max").write_text(str(3 * 2**30))  # an ancestor's limit binds too
    (group.parent / "memory.current").write_text(str(2**30))
    assert available() == 2 * 2**30
    (group.parent / "memory.stat").write_text(f"anon 5\ninactive_file {2**29}\n")
    assert available() == 2 * 2**30 + 2**29  # file cache gives way
    monkeypatch.setenv("SLURM_MEM_PER_CPU", "512")
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "2")
    assert available() == 2**30
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "100")
    assert available() == 100 * 2**20


def test_moments_are_those_of_the_stored_rows():
    rng = np.random.default_rng(0)
    storage = Storage(SCHEMA, 100_000)
    rows = rows_of(rng.normal(size=(70_000, 2)) * [1, 50] + [1000, -3])
    storage.add(rows, np.zeros(70_000, int), np.arange(70_000))
    mean, std, largest = storage.moments(slice(0, 4))
    stored = storage.rows[:70_000, :4].astype(np.float64)
    np.testing.assert_allclose(mean, stored.mean(0), rtol=1e-9)
    np.testing.assert_allclose(std, stored.std(0), rtol=1e-9)
    np.testing.assert_array_equal(largest, np.abs(stored).max(0))


@settings(max_examples=20)
@given(st.integers(1, 50))
def test_stated_bytes_are_the_arrays_bytes(capacity):
    storage = Storage(SCHEMA, capacity)
    arrays = (storage.rows, storage.episode, storage.step, storage.next)
    assert storage.nbytes == sum(array.nbytes for array in arrays)
