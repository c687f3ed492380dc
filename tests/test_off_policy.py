"""The door into RLlib: what goes through it, what comes back, and which of its private parts we touch."""

import json

import numpy as np
import pytest
import torch
from ray.rllib.core import DEFAULT_MODULE_ID

import tests.fake_envs  # noqa: F401
from interreplay.algorithms import off_policy
from interreplay.algorithms.off_policy import OffPolicy
from interreplay.algorithms.sac import SAC, SACConfig
from interreplay.errors import UsageError
from interreplay.launch.kinds.replay import ReplayRun
from interreplay.launch.running.run import train
from interreplay.launch.settings.resolution import parse


@pytest.fixture(autouse=True)
def _ray(ray_session):
    torch.set_num_threads(1)


def config(env="InvertedPendulum-v5", **replay):
    settings = {"learning_starts": 20, "timesteps_per_iteration": 60, "buffer_size": 1000} | replay
    built = SACConfig().environment(env).debugging(seed=1).replay(**settings)
    built.hidden_sizes = (16, 16)
    built.train_batch_size_per_learner = 32
    return built


def weights(algorithm):
    module = algorithm.learner_group._learner.module[DEFAULT_MODULE_ID]
    return {name: p.detach().clone() for name, p in module.named_parameters()}


@pytest.mark.parametrize(
    ("ratio", "steps", "updates"),
    [(1, 60, 40), (2.5, 60, 100), (0.25, 60, 10), (1, 20, 0)],
)
def test_updates_per_env_step_follow_the_replay_ratio(ratio, steps, updates):
    algorithm = config(ratio=ratio, timesteps_per_iteration=steps).build_algo()
    report = algorithm.train()
    assert (report["env_steps"], report["updates"]) == (steps, updates)
    algorithm.stop()


def test_a_high_ratio_learns_in_blocks_and_per_one_by_one():
    calls = {}
    for recipe, prioritized in (("vanilla", False), ("vanilla", True)):
        algorithm = config(recipe=recipe, prioritized=prioritized, ratio=5).build_algo()
        sizes = []
        inner = algorithm.learner_group.update

        def spy(*, batch, inner=inner, sizes=sizes, **kwargs):
            sizes.append(len(batch[DEFAULT_MODULE_ID]))
            return inner(batch=batch, **kwargs)

        algorithm.learner_group.update = spy
        algorithm.train()
        calls[prioritized] = sizes
        algorithm.stop()
    assert calls[False] == [5 * 32] * 40
    assert calls[True] == [32] * 200


@pytest.mark.parametrize(
    ("fragment", "copies", "steps"), [(1, 1, [60, 100]), (16, 1, [60, 100]), (16, 7, [63, 105])]
)
def test_a_run_ends_at_its_budget(fragment, copies, steps):
    built = config(total_timesteps=100)
    built.env_runners(rollout_fragment_length=fragment, num_envs_per_env_runner=copies)
    algorithm = built.build_algo()
    # Seven environments step together: 100 is rounded up to whole steps of all of them.
    assert [algorithm.train()["env_steps"] for _ in range(2)] == steps
    algorithm.stop()


def test_a_slow_run_says_so_once_with_what_is_left_of_it(monkeypatch):
    """By a clock that jumps 4 s whenever a batch has been made, and else stands still."""
    now = [0.0]
    algorithm = config(total_timesteps=120).build_algo()
    sample = algorithm.buffer.sample

    def slow_sample(count):
        now[0] += 4.0
        return sample(count)

    monkeypatch.setattr(algorithm.buffer, "sample", slow_sample)
    lines = []
    algorithm.say = lines.append
    with monkeypatch.context() as patched:
        patched.setattr(off_policy.time, "perf_counter", lambda: now[0])
        algorithm.train()
        algorithm.train()
    algorithm.stop()
    (line,) = lines
    # 120 steps less 20 of warm-up are 100 updates, two of them done.
    assert "an update takes 4.0 s (4.0 s to make its batch, 0 ms to learn from it)" in line
    assert "so the 98 to come take 6.5 min" in line


def test_num_sgd_iter_repeats_each_minibatch():
    algorithm = config(num_sgd_iter=3).build_algo()
    learner = algorithm.learner_group._learner
    seen = []
    inner = learner.update_minibatch
    learner.update_minibatch = lambda batch: (seen.append(batch["obs"].sum().item()), inner(batch))[
        1
    ]
    report = algorithm.train()
    assert (report["env_steps"], report["updates"]) == (60, 120)  # 40 minibatches
    assert seen[0::3] == seen[1::3] == seen[2::3]
    assert len(set(seen)) == 40
    algorithm.stop()


def test_targets_move_per_env_step_if_asked():
    algorithm = config(target_by_steps_sampled=True, ratio=0.1).build_algo()
    learner = algorithm.learner_group._learner
    moves = []
    inner = learner.move_targets
    learner.move_targets = lambda times: (moves.append(times), inner(times))[1]
    report = algorithm.train()
    # The first of 4 updates comes with the 30th of 60 env steps; from it on each step moves them.
    assert report["updates"] == 4
    assert sum(moves) == 31
    algorithm.stop()
    plain = config(ratio=0.1).build_algo()
    learner = plain.learner_group._learner
    moves = []
    learner.move_targets = moves.append
    plain.train()
    assert moves == [1] * 4
    plain.stop()


def test_several_target_moves_at_once_are_as_many_in_a_row():
    algorithm = config().build_algo()
    algorithm.train()
    learner = algorithm.learner_group._learner
    (targets, sources), tau = learner._pairs[0], learner.config.tau
    expected = [t.clone() for t in targets]
    for _ in range(5):
        expected = [t + tau * (s - t) for t, s in zip(expected, sources, strict=True)]
    learner.move_targets(5)
    for target, value in zip(targets, expected, strict=True):
        torch.testing.assert_close(target, value)
    algorithm.stop()


@pytest.mark.parametrize("workers", [0, 2])
def test_whole_episodes_are_collected_before_their_updates(workers):
    built = config(
        "tests.fake_envs:Chain-v0", whole_episodes=True, learning_starts=0, total_timesteps=200
    )
    built.env_runners(num_env_runners=workers)
    algorithm = built.build_algo()
    added, inner = [], algorithm.buffer.add

    def add(rows, episode, step):
        added.append((len(rows), len(set(episode)), int(step[0]), bool(rows[-1, -2:].any())))
        inner(rows, episode, step)

    algorithm.buffer.add = add
    report = algorithm.train()
    assert report["env_steps"] >= 60  # an iteration, rounded up to whole episodes
    assert report["updates"] == report["env_steps"] == sum(part[0] for part in added)
    assert len(added) >= 8
    for length, episodes, first, ended in added:
        assert (episodes, first, ended) == (1, 0, True)
        assert length in (5, 7)
    if not workers:
        assert algorithm.train()["env_steps"] <= 200
        while (steps := algorithm.train()["env_steps"]) < 200:
            pass
        assert steps == 200  # the budget cuts the last episode
    algorithm.stop()


def test_priorities_follow_the_learners_td_errors():
    algorithm = config(prioritized=True).build_algo()
    algorithm.train()
    size = len(algorithm.buffer)
    probabilities = algorithm.buffer.sampler.probabilities(np.arange(size))
    assert len(np.unique(probabilities.round(9))) > 20
    assert algorithm.buffer.stats()["per_largest_priority"] > 1
    algorithm.stop()


def test_local_runners_read_the_learners_weights_in_place():
    algorithm = config().build_algo()
    algorithm.train()
    trained = weights(algorithm)
    for runner in (algorithm.env_runner, algorithm.eval_env_runner):
        for name, parameter in runner.module.named_parameters():
            torch.testing.assert_close(parameter, trained[name], rtol=0, atol=0)
    algorithm.stop()


def test_several_envs_and_remote_runners_fill_one_buffer():
    remote = config("Chain-v0", timesteps_per_iteration=120)
    remote.env_runners(num_env_runners=2, num_envs_per_env_runner=2)
    # Workers have not imported the test's environments.
    remote.environment("tests.fake_envs:Chain-v0")
    algorithm = remote.build_algo()
    report = algorithm.train()
    storage = algorithm.buffer.storage
    assert report["env_steps"] == len(storage) == 120
    assert report["updates"] == 100
    rows = storage.rows[:120]
    np.testing.assert_array_equal(rows[:, 0], rows[:, 4])
    assert len({int(e) >> 40 for e in storage.episode[:120]}) == 2  # both runners contributed
    local = weights(algorithm)["policy.net.0.weight"].numpy()
    remotes = algorithm.env_runner_group.foreach_env_runner(
        lambda r: r.module.get_state()["policy.net.0.weight"], local_env_runner=False
    )
    assert report["env_runners"]["num_env_steps_sampled_lifetime"] == 120
    assert len(remotes) == 2
    for theirs in remotes:
        assert np.abs(theirs - local).max() < 0.01  # at most a fragment behind
    algorithm.stop()


def test_an_error_in_a_worker_process_reaches_the_user():
    remote = config("tests.fake_envs:Nan-v0").env_runners(num_env_runners=1)
    algorithm = remote.build_algo()
    with pytest.raises(UsageError, match=r"observation\[1\] = nan at step 3"):
        algorithm.train()
    algorithm.stop()


def test_workers_that_all_stay_silent_are_an_error_not_a_wait(monkeypatch):
    algorithm = config().env_runners(num_env_runners=1).build_algo()
    monkeypatch.setattr(off_policy, "synchronous_parallel_sample", lambda **_: ([], []))
    monkeypatch.setattr(off_policy.time, "sleep", lambda _: None)
    with pytest.raises(RuntimeError, match="none of the 1 env runner processes answers"):
        algorithm.train()
    algorithm.stop()


def test_two_learners_stay_equal_and_their_td_errors_come_back_in_order():
    two = config(ratio=1, timesteps_per_iteration=70, prioritized=True).learners(num_learners=2)
    two.train_batch_size_per_learner = 16
    algorithm = two.build_algo()
    seen = []
    inner = algorithm.buffer.update
    algorithm.buffer.update = lambda receipt, errors: (
        seen.append((len(receipt.numbers), len(errors))),
        inner(receipt, errors),
    )
    assert algorithm.train()["updates"] == 50
    assert set(seen) == {(32, 32)}
    states = [
        result.get()
        for result in algorithm.learner_group.foreach_learner(
            lambda learner: {k: v.detach().numpy() for k, v in learner.net.named_parameters()}
        )
    ]
    assert len(states) == 2
    for name, value in states[0].items():
        np.testing.assert_array_equal(value, states[1][name], err_msg=name)
    algorithm.stop()


@pytest.mark.parametrize(
    ("recipe", "prioritized"), [("vanilla", False), ("nmer", True), ("ct", False)]
)
def test_a_checkpoint_carries_everything_and_training_goes_on(tmp_path, recipe, prioritized):
    original = config(recipe=recipe, prioritized=prioritized).build_algo()
    original.train()
    original.save_to_path(str(tmp_path / "saved"))
    restored = SAC.from_checkpoint(str(tmp_path / "saved"))
    assert (restored.env_steps, restored.updates) == (60, 40)
    assert len(restored.buffer) == 60
    for name, value in weights(original).items():
        torch.testing.assert_close(weights(restored)[name], value, rtol=0, atol=0)
    # Replay, noise and optimizers go on alike: the same updates from here give the same weights.
    for algorithm in (original, restored):
        algorithm._update(10)
    for name, value in weights(original).items():
        torch.testing.assert_close(weights(restored)[name], value, rtol=0, atol=0)
    report = restored.train()
    assert (report["env_steps"], report["updates"]) == (120, 100)
    for runner in (restored.env_runner, restored.eval_env_runner):
        for name, parameter in runner.module.named_parameters():
            torch.testing.assert_close(parameter, weights(restored)[name], rtol=0, atol=0)
    original.stop()
    restored.stop()


def settled(reports):
    """Reports without what a clock, a machine or a process decides."""
    clocks = ("wall_s", "_per_s", "seconds", "time", "date", "pid", "hostname", "node_ip", "perf", "sample", "synch", "restore", "collect_and_learn", "iteration_s", "trial")  # fmt: skip

    def strip(tree):
        if not isinstance(tree, dict):
            return tree
        return {
            k: strip(v)
            for k, v in tree.items()
            if k != "timers" and not any(c in k for c in clocks if k not in KEPT)
        }

    return [strip(report) for report in reports]


KEPT = {
    "num_env_steps_sampled",
    "replay/sampled",
    "replay/sampled_per_added",
    "num_env_steps_sampled_lifetime",
    "training_iteration",
}


@pytest.mark.parametrize(
    "flags",
    [
        "--buffer nmer",
        "--buffer per",
        "-gp --gpytorch --global_hyperparams --mc_hyper -knn 5 --retrain_interval 50 --use_queue --perform_holdout_eval",
        "--buffer gaussian --num_envs_per_worker 3",
        "--trainer TD3 --buffer ct --n_step 3",
        "--trainer DDPG --buffer s4rl --s4rl_view adversarial --s4rl_num_views 2 --prioritized_replay",
    ],
)
def test_the_same_seed_gives_the_same_result_json_and_another_seed_another(tmp_path, flags):
    def run(folder, seed):
        command = (
            f"--env InvertedPendulum-v5 {flags} --seed {seed} --total_timesteps 240 --learning_starts 60 "
            f"--timesteps_per_iteration 120 --hidden_sizes 16 16 --train_batch_size 32 --evaluation_num_episodes 2 "
            f"--num_cpus 1 --local_dir {tmp_path / folder}"
        )
        return settled(train(ReplayRun(parse(command.split())[0]), quiet=True).reports())

    first, again, other = run("a", 3), run("b", 3), run("c", 4)
    assert first == again
    assert first != other
    assert first[-1]["learners"] != other[-1]["learners"]
    assert first[0]["evaluation_return_mean"] != other[0]["evaluation_return_mean"]
    text = json.dumps(first[-1])
    assert "critic_loss" in text
    assert "replay/sampled" in text


def test_divergence_is_reported_as_such():
    algorithm = config().build_algo()
    learner = algorithm.learner_group._learner
    with torch.no_grad():
        learner.net.critics.weights[0][:] = float("nan")
    with pytest.raises(UsageError, match="training has diverged"):
        algorithm.train()
    algorithm.stop()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"recipe": "her"}, "unknown recipe 'her'"),
        ({"ratio": -1}, "--replay_ratio"),
    ],
)
def test_a_config_that_cannot_work_is_refused(change, message):
    with pytest.raises(UsageError, match=message):
        config(**change).build_algo()


def test_a_setting_of_minus_one_reaches_the_learner():
    """RLlib's configs lose every attribute that equals -1, its mark for "deprecated"."""
    given = config("HalfCheetah-v5")  # whose default would be -6
    given.target_entropy = -1.0
    algorithm = given.build_algo()
    assert algorithm.config.target_entropy == -1.0
    assert algorithm.learner_group._learner._target_entropy == -1.0
    algorithm.stop()


def test_every_private_part_of_rllib_that_we_touch_is_still_there():
    """One place that fails when a new ray moves them; nothing outside this room may use any."""
    algorithm = config().build_algo()
    assert algorithm.learner_group._learner is not None
    learner = algorithm.learner_group._learner
    for name in ("_optimizer_parameters", "_weights_seq_no", "_device", "_learner_index"):
        assert hasattr(learner, name)
    for name in ("_make_modules_ddp_if_necessary", "compute_loss_for_module"):
        assert hasattr(type(learner).__mro__[2], name)
    assert hasattr(algorithm, "_check_component")
    assert isinstance(algorithm, OffPolicy)
    assert isinstance(algorithm.env_runner._seed, int)
    algorithm.stop()
