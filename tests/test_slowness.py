"""The line about a slow run, from durations that are given: no clock is read."""

import pytest

from interreplay.algorithms.slowness import Setting, SlownessWatch, duration
from replay_buffers.assembly import ReplaySettings, recipe_of

SHARED = {"gpytorch": True, "global_hyperparams": True, "mc_hyper": True, "normalize": True}


def watch(recipe="vanilla", obs_dim=3, **replay):
    return SlownessWatch(Setting(recipe_of(recipe), ReplaySettings(**replay), obs_dim))


def said(watched, calls, left=10_000):
    """Lines, each with the number of the call it came after."""
    found = []
    for number, (batch, learning) in enumerate(calls, 1):
        line = watched.line(batch, learning, 1, left)
        if line is not None:
            found.append((number, line))
    return found


def test_a_process_for_each_row_is_reported_after_two_updates_and_once():
    ((number, line),) = said(watch("bier", kneighbors=50), [(4.66, 0.04)] * 5000, left=98)
    assert number == 2
    assert line.startswith(
        "slow: an update takes 4.7 s (4.7 s to make its batch, 40 ms to learn from it), "
        "so the 98 to come take 7.7 min; faster: --buffer bier without further flags"  # 98 * 4.7 s
    )
    assert "--kneighbors 20 in place of 50" in line


@pytest.mark.parametrize("recipe", ["nmer", "bier"])
def test_neighbours_among_observations_of_20000_numbers_are_named_as_the_cause(recipe):
    ((number, line),) = said(watch(recipe, 20_000, **SHARED), [(75.0, 0.3), (90.0, 0.3)])
    assert number == 2
    assert "75 s" not in line  # a minute and a quarter
    assert "an update takes 1.3 min (1.2 min to make its batch, 300 ms to learn from it)" in line
    assert "so the 10,000 to come take 8.7 days" in line  # 753,000 s
    assert "--buffer mixup or ct, which search no neighbours among observations of 20,000" in line


@pytest.mark.parametrize(
    "calls",
    [
        [(0.0001, 0.007)] * 5000,
        [(0.009, 0.007)] * 5000,  # bier as recommended
        [(3.0, 0.5), *[(0.009, 0.007)] * 5000],  # the first fit, the first touch of memory
        [(0.009, 0.007), (3.0, 0.5), *[(0.009, 0.007)] * 5000],
        [*[(0.009, 0.007)] * 300, (2.0, 0.007), *[(0.009, 0.007)] * 300],  # a later fit
        [(0.02, 0.2)] * 5000,  # large networks on a small machine
    ],
)
def test_fast_runs_get_no_line(calls):
    assert said(watch("bier", **SHARED), calls) == []


def test_what_is_soon_over_gets_no_line():
    assert said(watch("bier"), [(4.6, 0.1)] * 10, left=12) == []  # 56 s
    assert len(said(watch("bier"), [(4.6, 0.1)] * 10, left=13)) == 1  # 61 s


def test_what_grows_slow_with_the_buffer_is_seen():
    calls = [*[(0.01, 0.01)] * 100, *[(0.5, 0.01)] * 2000]
    ((number, _),) = said(watch("nmer", 400), calls)
    # Looks come after 2, 6, 14, 30, 62, 126, 254 calls; in the one at 254 most calls are slow.
    assert number == 254


def test_several_updates_of_one_call_share_its_cost():
    watched = watch("bier", **SHARED)
    assert [watched.line(32 * 0.009, 32 * 0.007, 32, 10_000) for _ in range(4)] == [None] * 4
    watched = watch("bier")
    assert watched.line(32 * 4.0, 32 * 0.5, 32, None) is None
    line = watched.line(32 * 4.0, 32 * 0.5, 32, None)
    assert "an update takes 4.5 s (4.0 s to make its batch, 500 ms" in line
    assert "1,000 of them take 1.2 h" in line  # 4,500 s


def test_slow_learning_gets_its_own_advice():
    ((_, line),) = said(watch("s4rl", s4rl_num_views=64), [(0.01, 2.0)] * 5)
    assert "faster: fewer than 64 --s4rl_num_views; smaller --hidden_sizes" in line
    assert "--buffer" not in line


def test_where_batch_and_learning_share_the_blame_both_are_advised():
    ((_, line),) = said(watch("nmer", 20_000), [(0.334, 0.388)] * 2)
    assert "among observations of 20,000 numbers" in line
    assert "smaller --hidden_sizes" in line


@pytest.mark.parametrize(
    ("recipe", "replay", "advice"),
    [
        ("bier", {**SHARED, "per_output_hyperparams": True}, "drop --per_output_hyperparams"),
        ("bier", {"gpytorch": True, "single_model": True, "train_size": 9000}, "below 9,000"),
        ("nmer", {}, "a smaller --buffer_size"),
        ("mixup", {}, "faster: a smaller --replay_ratio or --train_batch_size"),
    ],
)
def test_advice_follows_the_recipe(recipe, replay, advice):
    ((_, line),) = said(watch(recipe, **replay), [(1.0, 0.01)] * 2)
    assert advice in line
    assert "--hidden_sizes" not in line


def test_durations_are_in_the_unit_that_people_use():
    assert [duration(s) for s in (0.0123, 1, 4.66, 42, 90, 3 * 3600, 86400 * 5.1)] == [
        "12 ms", "1.0 s", "4.7 s", "42 s", "1.5 min", "3.0 h", "5.1 days",
    ]  # fmt: skip
