import numpy as np
import pytest

import tests.fake_envs as fakes
from interreplay.algorithms import env_runner
from interreplay.algorithms.env_runner import EPISODE_RETURNS, RowEnvRunner
from interreplay.algorithms.sac import SACConfig
from interreplay.errors import UsageError
from replay_buffers.storage import Storage


@pytest.fixture(autouse=True)
def _ray(ray_session):
    pass


def runner(env="Chain-v0", copies=1, evaluation=False, seed=3, worker=0, **env_runners):
    config = SACConfig().environment(env).debugging(seed=seed).replay(learning_starts=10)
    config.env_runners(num_envs_per_env_runner=copies, **env_runners)
    config.hidden_sizes = (8,)
    if evaluation:
        config.in_evaluation = True
        config.explore = False
    return RowEnvRunner(config=config, worker_index=worker, num_workers=0)


@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize("fragment", [1, 4])
def test_no_row_joins_two_episodes(copies, fragment):
    run = runner(copies=copies, rollout_fragment_length=fragment)
    storage = Storage(run.schema, 1000)
    seen = 0
    while seen < 120:
        (rows,) = run.sample()
        assert len(rows) == copies * fragment
        seen += len(rows)
        storage.add(rows.rows, rows.episode, rows.step)
    code_of = {}
    for row, episode, step in zip(
        storage.rows[:seen], storage.episode[:seen], storage.step[:seen], strict=True
    ):
        code, time, new_code, new_time = row[0], row[1], row[4], row[5]
        assert code == new_code  # a row stays inside one episode
        assert (time, new_time) == (step, step + 1)
        assert code_of.setdefault(int(episode), code) == code  # ids and episodes are one to one
        terminates = code % 1000 % 3 == 0
        assert row[-2] == (terminates and new_time == 5)
        assert row[-1] == (new_time == 7)
    assert len(set(code_of.values())) == len(code_of) > 10
    followers = storage.successors(np.arange(seen))
    linked = followers >= 0
    np.testing.assert_array_equal(
        storage.rows[followers[linked], :2], storage.rows[:seen][linked, 4:6]
    )
    ended = (storage.rows[:seen, -2:] > 0).any(1)
    newest = storage.step[:seen] == [
        max(storage.step[:seen][storage.episode[:seen] == e]) for e in storage.episode[:seen]
    ]
    np.testing.assert_array_equal(linked, ~(ended | newest))


def test_stored_actions_are_in_policy_space_and_the_env_gets_its_own_units():
    run = runner()
    (rows,) = run.sample(num_timesteps=50)
    stored = rows.rows[:, 2]
    assert np.abs(stored).max() <= 1
    inner = run.env.envs[0].unwrapped
    # The box is [-2, 4]: -1 -> -2, 1 -> 4.
    np.testing.assert_allclose(inner.actions, 1 + 3 * stored, rtol=1e-5)


def test_the_env_gets_actions_that_its_space_contains():
    run = runner("Picky-v0", copies=2)
    run.sample(num_timesteps=40)
    run.module.policy.net[-1].bias.data[:1] = 50.0  # saturated: the upper end of the box
    run.module.policy.net[-1].weight.data[:] = 0
    (rows,) = run.sample(num_timesteps=10)
    assert (rows.rows[:, 2] == 1).all()


def test_an_evaluation_that_never_ends_is_an_error(monkeypatch):
    monkeypatch.setattr(env_runner, "LONGEST_EPISODE", 50)
    with pytest.raises(UsageError, match="has not ended after 50 steps; .* --horizon"):
        runner("Endless-v0", evaluation=True).sample(num_episodes=1)


def test_warm_up_is_uniform_and_ends_after_learning_starts():
    run = runner(copies=2)
    run.module.policy.net[-1].bias.data[0] = 30.0  # the policy itself always says +1
    run.module.policy.net[-1].weight.data[:] = 0
    (rows,) = run.sample(num_timesteps=20)
    actions = rows.rows[:, 2]
    assert (actions[:10] < 0.999).all()
    assert actions[:10].std() > 0.3
    assert (actions[10:] > 0.999).all()


def test_the_same_seed_gives_the_same_rows_and_another_worker_others():
    first, again, other = runner(), runner(), runner(worker=1)
    rows = [r.sample(num_timesteps=30)[0] for r in (first, again, other)]
    np.testing.assert_array_equal(rows[0].rows, rows[1].rows)
    assert (rows[0].rows != rows[2].rows).any()
    assert not set(rows[0].episode) & set(rows[2].episode)


def test_evaluation_runs_each_copys_share_of_episodes_and_reports_each_return():
    run = runner(copies=2, evaluation=True)
    (rows,) = run.sample(num_episodes=5)
    metrics = run.get_metrics()
    returns = [x for stat in [metrics[EPISODE_RETURNS]] for x in stat.peek()]
    # Rewards are 1..7 (28) or 1..5 (15) in every third episode of a copy, whose counter goes on
    # from the reset at construction: copies play episodes 1, 2, 3 and 1, 2.
    assert sorted(returns) == [15, 28, 28, 28, 28]
    assert len(rows) == 4 * 7 + 5
    assert metrics["num_episodes"].peek() == 5
    assert run.sample(num_episodes=2)[0].rows[0, 1] == 0  # starts afresh


def test_evaluation_states_depend_on_seed_and_step_only():
    def first_code(steps, seed=3):
        run = runner(evaluation=True, seed=seed)
        run.set_state({"num_env_steps_sampled_lifetime": steps})
        return run.sample(num_episodes=1)[0].rows[0, 0]

    assert first_code(0) == first_code(0)
    assert len({first_code(0), first_code(1000), first_code(2000)}) > 1
    assert first_code(0) != first_code(0, seed=4)


def test_an_env_that_returns_nan_is_named_with_step_and_element():
    with pytest.raises(UsageError, match=r"Nan-v0 returned observation\[1\] = nan at step 3"):
        runner("Nan-v0").sample(num_timesteps=10)


def test_a_failed_env_is_rebuilt_when_asked_and_raises_otherwise():
    fakes.BrokenOnceEnv.broke, fakes.BrokenOnceEnv.total = False, 0
    run = runner("BrokenOnce-v0")
    run.config.restart_failed_sub_environments = True
    (rows,) = run.sample(num_timesteps=20)
    assert len(rows) == 19  # the failed step gives no row
    assert rows.step[:5].tolist() == [0, 1, 2, 0, 1]
    assert rows.episode[2] != rows.episode[3]
    assert run.get_metrics()["num_env_step_failures"].peek() == 1

    fakes.BrokenOnceEnv.broke, fakes.BrokenOnceEnv.total = False, 0
    with pytest.raises(RuntimeError, match="the simulator died"):
        runner("BrokenOnce-v0").sample(num_timesteps=20)


def test_state_round_trip_keeps_counters_weights_and_noise():
    run = runner()
    run.sample(num_timesteps=25)
    state = run.get_state()
    copy = runner(seed=77)
    copy.set_state(state)
    obs = {"obs": __import__("torch").zeros(4, 2)}
    a, b = (r.module.forward_exploration(obs, t=99, generator=r._generator) for r in (run, copy))
    np.testing.assert_array_equal(a["actions"].numpy(), b["actions"].numpy())
    assert copy.num_env_steps_sampled_lifetime == 25
    assert copy._episodes_started == run._episodes_started > 1
    # The first episode after a restore is not the run's first one again.
    first = runner().sample()[0].rows[0, 0]
    assert copy.sample(force_reset=True)[0].rows[0, 0] // 1000 != first // 1000
    assert not set(copy.sample()[0].episode) & set(run.sample(force_reset=True)[0].episode - 1)
