import gymnasium as gym
import numpy as np
import pytest

import tests.fake_envs  # noqa: F401  # registers them
from interreplay.environments import check_first_observation, make_env, make_vector_env, resolve_id
from interreplay.environments.ids import MUJOCO
from interreplay.errors import UsageError


@pytest.mark.parametrize("version", ["v2", "v3"])
@pytest.mark.parametrize("name", MUJOCO)
def test_every_old_id_of_mujoco_runs_its_v5_successor_with_one_warning(name, version):
    resolved, warning = resolve_id(f"{name}-{version}")
    assert resolved == f"{name}-v5"
    assert f"{name}-{version}" in warning
    assert f"{name}-v5" in warning
    assert gym.spec(resolved) is not None


@pytest.mark.parametrize(
    ("old", "new"),
    [("Pendulum-v0", "Pendulum-v1"), ("LunarLanderContinuous-v2", "LunarLanderContinuous-v3")],
)
def test_renamed_ids_of_classic_control_and_box2d(old, new):
    resolved, warning = resolve_id(old)
    assert resolved == new
    assert old in warning
    assert gym.spec(new) is not None


def test_a_current_id_is_left_alone():
    assert resolve_id("HalfCheetah-v5") == ("HalfCheetah-v5", None)


@pytest.mark.parametrize(
    ("env", "hint"),
    [
        ("HalfCheeta-v5", "did you mean HalfCheetah-v5"),
        ("HalfCheetah-v77", "HalfCheetah-v5"),
        ("no/such/thing", "pprint_registry"),
        ("no_such_module:Env-v0", "module 'no_such_module' .* can't be imported"),
        (":foo", "can't be imported"),
        (".x:Foo-v0", "can't be imported"),
        ("tests.fake_envs:Chian-v0", "did you mean Chain-v0"),
        ("", "unknown environment ''"),
    ],
)
def test_an_unknown_id_names_the_closest(env, hint):
    with pytest.raises(UsageError, match=hint):
        resolve_id(env)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ("DiscreteActions-v0", "Discrete actions"),
        ("CartPole-v1", "Discrete actions"),
        ("Unbounded-v0", "unbounded action box"),
        ("MatrixActions-v0", r"shape \(2, 2\)"),
        ("Image-v0", r"Box\(8, 8, 3\) observations"),
        ("DictObs-v0", "Dict observations"),
        ("IntegerActions-v0", "int32 actions"),
    ],
)
def test_spaces_that_cannot_be_learned_are_refused(env, message):
    with pytest.raises(UsageError, match=message):
        make_env(env)


def test_an_observation_of_another_shape_than_promised_is_refused():
    env = make_env("WrongShape-v0")
    with pytest.raises(UsageError, match=r"shape \(2,\) but its space has shape \(3,\)"):
        check_first_observation(env, "WrongShape-v0")


def test_horizon_replaces_the_time_limit():
    env = make_env("HalfCheetah-v5", horizon=3)
    env.reset(seed=0)
    truncations = [env.step(np.zeros(6))[3] for _ in range(3)]
    assert truncations == [False, False, True]


def test_a_finished_copy_resets_itself_and_keeps_its_last_observation():
    envs = make_vector_env("Chain-v0", 2)
    envs.reset(seed=0)
    for _ in range(7):
        obs, _, _, truncated, infos = envs.step(np.zeros((2, 1)))
    assert truncated.all()
    assert obs[:, 1].tolist() == [0, 0]
    assert [last[1] for last in infos["final_obs"]] == [7, 7]


def test_mujoco_leaves_no_log_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_env("HalfCheetah-v5").close()
    assert list(tmp_path.iterdir()) == []
