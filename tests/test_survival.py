"""Runs that are interrupted: by signals, kills and full disks. They go on as if nothing had been."""

import dataclasses
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import tests.fake_envs  # noqa: F401
from interreplay.environments import make_env
from interreplay.environments import state as env_state
from interreplay.errors import UsageError
from interreplay.launch.kinds.replay import ReplayRun
from interreplay.launch.running import checkpoints, journal
from interreplay.launch.running.run import describe, folder_of, train
from interreplay.launch.settings.resolution import parse
from tests.test_off_policy import settled

ROOT = Path(__file__).parents[1]
TINY = (
    "--env InvertedPendulum-v5 --total_timesteps 600 --learning_starts 60 "
    "--timesteps_per_iteration 50 --hidden_sizes 8 --train_batch_size 8 --buffer_size 400 "
    "--num_cpus 1 --checkpoint_freq 1 --seed 5"
)
BIER = "--buffer bier --gpytorch --global_hyperparams --mc_hyper -knn 5 --retrain_interval 200"
RECIPES = {
    "vanilla": "--buffer vanilla",
    "per": "--buffer per",
    "nmer": "--buffer nmer",
    "ct": "--buffer ct",
    "bier": BIER,
}


def tiny(place, flags=""):
    return ReplayRun(parse(f"{TINY} {flags} --local_dir {place}".split())[0])


def command(place, flags=""):
    return subprocess.Popen(
        f"{sys.executable} custom_training.py {TINY} {flags} --local_dir {place}".split(),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def lines(folder):
    return settled(folder.reports())


def stop_at(step, run):
    """A question that says yes from an env step on."""
    seen = {"steps": 0}

    def ask():
        seen["steps"] += 1
        return seen["steps"] >= step

    return ask


# -- the state of an environment ---------------------------------------------------------------


@pytest.mark.parametrize(
    "env", ["HalfCheetah-v5", "Ant-v5", "Humanoid-v5", "Pendulum-v1", "dmc/walker_walk"]
)
def test_an_environment_goes_on_exactly_where_its_state_was_taken(env):
    one, other = make_env(env), make_env(env)
    one.reset(seed=3)
    other.reset(seed=99)
    actions = np.random.default_rng(0).uniform(-1, 1, (60, *one.action_space.shape))
    actions = actions.astype(one.action_space.dtype) * one.action_space.high
    for action in actions[:20]:
        one.step(action)
    env_state.set_state(other, env_state.get_state(one))
    for action in actions[20:]:
        mine, theirs = one.step(action), other.step(action)
        np.testing.assert_array_equal(mine[0], theirs[0])
        assert mine[1:4] == theirs[1:4]
    # The generator too: the next episode begins alike.
    np.testing.assert_array_equal(one.reset()[0], other.reset()[0])


def test_an_environment_that_cannot_be_written_down_says_what_stands_in_the_way():
    env = gym.make("Pendulum-v1")
    env.unwrapped.window = open(os.devnull)  # noqa: SIM115  # no file can be pickled
    with pytest.raises(env_state.CannotSaveError, match="PendulumEnv"):
        env_state.get_state(env)
    env.unwrapped.window.close()


# -- the same curve ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory, ray_session):
    """Runs that nothing interrupted, made when asked for."""
    made = {}

    def of(flags):
        if flags not in made:
            place = tmp_path_factory.mktemp("whole")
            made[flags] = lines(train(tiny(place, flags), quiet=True))
        return made[flags]

    return of


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_run_stopped_in_mid_iteration_gives_the_curve_of_one_that_was_not(
    recipe, whole, tmp_path
):
    run = tiny(tmp_path, RECIPES[recipe])
    for step in (130, 7, 211):
        with pytest.raises(KeyboardInterrupt):
            train(run, quiet=True, stop=stop_at(step, run))
        folder = folder_of(run)
        assert folder.state == "interrupted"
        assert "to go on from step_" in describe(run, folder)
    folder = train(run, quiet=True)
    assert folder.state == "finished"
    assert lines(folder) == whole(RECIPES[recipe])
    resumed = json.loads(folder.run.read_text())["resumed"]
    assert [note["env_steps"] for note in resumed] == [130, 137, 348]


@pytest.mark.parametrize("flags", ["--trainer DDPG", "--trainer TD3 --num_envs_per_worker 2"])
def test_exploration_noise_and_several_environments_go_on_too(flags, whole, tmp_path):
    run = tiny(tmp_path, flags)
    with pytest.raises(KeyboardInterrupt):
        train(run, quiet=True, stop=stop_at(88, run))
    assert lines(train(run, quiet=True)) == whole(flags)


@pytest.fixture(scope="module")
def starter():
    """Starts processes that have their imports behind them."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["interreplay.launch.running.run", "interreplay.algorithms.sac"])
    return context


@pytest.mark.parametrize("recipe", RECIPES)
def test_five_kills_at_random_moments_change_nothing(recipe, whole, starter, tmp_path):
    rng = random.Random(recipe)
    run = tiny(tmp_path, RECIPES[recipe])
    folder = folder_of(run)
    for _ in range(5):
        running = starter.Process(target=train, args=(run,), kwargs={"quiet": True})
        had = folder.lines()
        running.start()
        # Killed a little after it has got further, in whatever it is doing then.
        while running.is_alive() and folder.lines() <= had + 1:
            time.sleep(0.01)
        time.sleep(rng.uniform(0, 0.3))
        running.kill()
        running.join()
    last = starter.Process(target=train, args=(run,), kwargs={"quiet": True})
    last.start()
    last.join()
    assert last.exitcode == 0
    assert lines(folder) == whole(RECIPES[recipe])
    assert folder.state == "finished"
    assert len(json.loads(folder.run.read_text())["resumed"]) >= 3


# -- signals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGINT", 130), ("SIGUSR1", 138)])
def test_a_signal_is_answered_with_a_checkpoint(name, code, tmp_path):
    flags = "--total_timesteps 1e6 --timesteps_per_iteration 50000 --checkpoint_freq 0"
    folder = folder_of(tiny(tmp_path, flags))
    running = command(tmp_path, flags)
    while running.poll() is None and not folder.lines():
        time.sleep(0.05)
    time.sleep(1.0)
    running.send_signal(getattr(signal, name))
    out, errors = running.communicate(timeout=60)
    assert running.returncode == code, errors
    assert "Traceback" not in errors
    assert f"stopped by {name} at env step" in out
    assert folder.state == "interrupted"
    mark = checkpoints.check(checkpoints.newest(folder), ("InvertedPendulum-v5", "SAC", "vanilla"))
    assert 0 < mark.env_steps < 50_000
    assert mark.lines == 1


# -- a new run from a checkpoint ------------------------------------------------------------------


@pytest.fixture
def stopped(tmp_path, ray_session):
    run = tiny(tmp_path / "first")
    with pytest.raises(KeyboardInterrupt):
        train(run, quiet=True, stop=stop_at(130, run))
    return run, folder_of(run)


def test_a_new_run_begins_from_another_ones_checkpoint(stopped, tmp_path):
    _, folder = stopped
    new = train(tiny(tmp_path / "new", f"--gamma 0.9 --restore_path {folder.path}"), quiet=True)
    reports = new.reports()
    assert [r["env_steps"] for r in reports[:3]] == [130, 150, 200]
    assert reports[0]["updates"] == 70
    assert reports[-1]["env_steps"] == 600
    assert reports[-1]["updates"] == 540
    assert folder.state == "interrupted"  # the old run is as it was


def test_without_its_buffer_a_run_warms_up_again_and_fires_no_burst(tmp_path, ray_session):
    flags = "--no-checkpoint_buffer --learning_starts 100 --timesteps_per_iteration 25"
    run = tiny(tmp_path, flags)
    with pytest.raises(KeyboardInterrupt):
        train(run, quiet=True, stop=stop_at(300, run))
    folder = folder_of(run)
    assert not (checkpoints.newest(folder) / "replay_buffer").exists()
    train(run, quiet=True)
    updates = {r["env_steps"]: r["updates"] for r in folder.reports()}
    # 200 by step 300, none while 100 rows are collected, then one a step again.
    assert (updates[300], updates[400], updates[425], updates[600]) == (200, 200, 225, 400)
    assert "no replay buffer" in folder.log.read_text()


def test_an_environment_without_a_state_begins_a_new_episode_and_the_log_says_so(
    tmp_path, ray_session, monkeypatch
):
    def refuse(env):
        raise env_state.CannotSaveError("its simulator is far away")

    run = tiny(tmp_path)
    monkeypatch.setattr(env_state, "get_state", refuse)
    with pytest.raises(KeyboardInterrupt):
        train(run, quiet=True, stop=stop_at(130, run))
    folder = train(run, quiet=True)
    assert "its simulator is far away" in folder.log.read_text()
    assert folder.reports()[-1]["env_steps"] == 600


# -- what is wrong with it -------------------------------------------------------------------------


def test_a_checkpoint_that_will_not_do_is_one_sentence_and_nothing_is_lost(stopped, tmp_path):
    run, folder = stopped
    path = checkpoints.newest(folder)

    def refused(flags, message):
        with pytest.raises(UsageError, match=message) as caught:
            train(tiny(tmp_path / "other", flags), quiet=True)
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "other").exists()

    here = f"--restore_path {path}"
    refused(f"{here} --buffer nmer", "is of the recipe vanilla, and this run of nmer")
    refused(f"{here} --env Pendulum-v1", "is of the environment InvertedPendulum-v5")
    refused(f"{here} --trainer TD3", "is of the trainer SAC")
    refused(f"{here} --total_timesteps 130", "raise it")
    refused(f"{here} --hidden_sizes 16", "does not fit this run's settings")
    refused(f"{here} --buffer_size 100", "does not fit this run's settings")
    refused("--restore_path /nowhere", "no such folder")
    refused(f"--restore_path {tmp_path}", "no whole checkpoint")
    mark = json.loads((path / "complete.json").read_text())
    (path / "complete.json").write_text(json.dumps({**mark, "format": 99, "of_tomorrow": 1}))
    refused(here, "newer interreplay")
    (path / "complete.json").write_text(json.dumps(mark))
    largest = max(mark["files"], key=mark["files"].get)
    content = (path / largest).read_bytes()
    (path / largest).write_bytes(content[:-10])
    refused(here, f"damaged: {largest} has")
    with pytest.raises(UsageError, match="damaged"):
        train(run, quiet=True)
    assert folder.state == "interrupted" and folder.lines() == 3
    # As the sentence says: without it, the run goes on from the one before.
    shutil.rmtree(path)
    with pytest.raises(KeyboardInterrupt):
        train(run, quiet=True, stop=stop_at(1, run))
    assert json.loads(folder.run.read_text())["resumed"][-1]["env_steps"] == 100


def test_a_kill_while_a_checkpoint_is_written_loses_nothing_older(stopped, monkeypatch):
    run, folder = stopped
    before = checkpoints.newest(folder)

    def cut_off(algorithm, path):
        (Path(path) / "half").write_text("...")
        raise SystemExit(9)  # as if killed here: nothing is cleaned up

    from interreplay.algorithms.sac import SAC

    monkeypatch.setattr(SAC, "save_to_path", cut_off)
    with pytest.raises(SystemExit):
        train(run, quiet=True)
    assert checkpoints.newest(folder) == before
    monkeypatch.undo()
    assert train(run, quiet=True).state == "finished"
    assert not list(folder.checkpoints.glob("*.tmp"))


def test_a_full_disk_is_one_sentence_and_the_run_goes_on_when_there_is_room(
    stopped, monkeypatch, whole
):
    run, folder = stopped

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints, "_sync", full)
    with pytest.raises(UsageError, match="No space left on device.*goes on from there") as caught:
        train(run, quiet=True)
    assert "\n" not in str(caught.value)
    assert folder.state == "failed"
    monkeypatch.undo()
    assert lines(train(run, quiet=True)) == whole("")


def test_checkpoints_come_by_iterations_and_by_the_clock_and_two_are_kept(
    tmp_path, ray_session, monkeypatch
):
    saved = []
    monkeypatch.setattr(
        journal, "save", lambda algorithm, *a, **k: saved.append(algorithm.env_steps) or (None, 0)
    )
    train(tiny(tmp_path / "a", "--checkpoint_freq 5"), quiet=True)
    assert saved == [250, 500, 600]
    saved.clear()
    monkeypatch.setattr(journal, "CHECKPOINT_EVERY_S", 0.0)
    train(tiny(tmp_path / "b", "--checkpoint_freq 0"), quiet=True)
    assert saved == [*range(50, 601, 50), 600]
    monkeypatch.undo()
    folder = train(tiny(tmp_path / "c"), quiet=True)
    assert [p.name for p in sorted(folder.checkpoints.iterdir())] == [
        "step_0000000550",
        "step_0000000600",
    ]


def test_settings_that_change_results_do_not_go_on_with_a_run(stopped):
    run, folder = stopped
    other = ReplayRun(dataclasses.replace(run.settings, gamma=0.5))
    assert "to run" in describe(other, folder)
    assert "to go on" in describe(ReplayRun(dataclasses.replace(run.settings, num_cpus=2)), folder)
    assert "to run" in describe(ReplayRun(dataclasses.replace(run.settings, fresh=True)), folder)


def test_the_best_return_so_far_survives_as_well(stopped):
    run, _ = stopped
    reports = train(run, quiet=True).reports()
    returns = [r["evaluation_return_mean"] for r in reports]
    assert [r["evaluation_return_best"] for r in reports] == list(np.maximum.accumulate(returns))
