import importlib.util
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import tests.fake_envs  # registers them
from interreplay.environments import (
    check_first_step,
    dmc,
    make_env,
    make_vector_env,
    resolve_id,
)
from interreplay.environments.ids import MUJOCO
from interreplay.errors import UsageError

ROOT = Path(__file__).parents[1]


# pytest's summary says why (`-rs` in pyproject.toml); env/requirements-test.txt brings it.
needs_dm_control = pytest.mark.skipif(
    importlib.util.find_spec("dm_control") is None,
    reason="dm_control is not installed: pip install -r env/requirements-test.txt",
)
CURRENT = [f"{name}-v{version}" for name in MUJOCO for version in (4, 5)]


@pytest.mark.parametrize("env", [*CURRENT, "Pendulum-v0", "LunarLanderContinuous-v2"])
def test_ids_of_today_and_renamed_ones_step(env):
    resolved, warning = resolve_id(env)
    # The model of Pusher-v4 needs a mujoco that is too old for everything else.
    assert (resolved == env) == (warning is None) == (env in CURRENT and env != "Pusher-v4")
    built = make_env(env)
    built.reset(seed=0)
    obs, reward, *_ = built.step(np.zeros(built.action_space.shape, np.float32))
    assert np.isfinite(obs).all()
    assert np.isfinite(reward)


@needs_dm_control
@pytest.mark.parametrize("task", dmc.TASKS)
def test_a_dm_control_task_runs_200_steps(task):
    env, twin = make_env(f"dmc/{task}"), make_env(f"dmc/{task}")
    obs, _ = env.reset(seed=3)
    np.testing.assert_array_equal(obs, twin.reset(seed=3)[0])
    actions = np.random.default_rng(0).uniform(
        env.action_space.low, env.action_space.high, (200, *env.action_space.shape)
    )
    for step, action in enumerate(actions):
        obs, reward, terminated, truncated, _ = env.step(action)
        assert obs.dtype == np.float32
        assert obs.shape == env.observation_space.shape
        assert np.isfinite(obs).all()
        assert 0 <= reward <= 1
        assert not terminated
        assert not truncated
        if step < 20:
            np.testing.assert_array_equal(obs, twin.step(action)[0])
    assert (env.reset(seed=4)[0] != env.reset(seed=5)[0]).any()


@needs_dm_control
def test_a_dm_control_episode_is_cut_after_1000_steps_and_does_not_terminate():
    env = make_env("dmc/cartpole_swingup")
    env.reset(seed=0)
    ends = [env.step(np.zeros(1))[2:4] for _ in range(1000)]
    assert ends == [(False, False)] * 999 + [(False, True)]
    env = make_env("dmc/cartpole_swingup", horizon=1500)
    env.reset(seed=0)
    ends = [env.step(np.zeros(1))[2:4] for _ in range(1500)]
    assert ends == [(False, False)] * 1499 + [(False, True)]


@needs_dm_control
def test_dm_control_observations_are_the_tasks_arrays_by_name():
    from dm_control import suite

    env = make_env("dmc/walker_walk")
    env.reset(seed=0)
    obs, reward, *_ = env.step(np.full(6, 0.5))
    plain = suite.load("walker", "walk", task_kwargs={"random": 0})
    plain.reset()
    expected = plain.step(np.full(6, 0.5))
    assert reward == expected.reward
    arrays = [np.ravel(array) for _, array in sorted(expected.observation.items())]
    np.testing.assert_allclose(obs, np.concatenate(arrays), rtol=1e-6)
    assert [len(array) for array in arrays] == [1, 14, 9]  # height, orientations, velocity


@pytest.mark.parametrize(
    ("env", "resolved"),
    [
        ("dmc/walker_walk", "dmc/walker_walk"),
        ("dmc.dm_control_configs.walker_walk", "dmc/walker_walk"),
        ("dmc.dm_control_configs.cup_catch", "dmc/ball_in_cup_catch"),
        pytest.param(  # of the suite, not of the fifteen: the suite is asked
            *("dmc/cartpole_balance", "dmc/cartpole_balance"), marks=needs_dm_control
        ),
    ],
)
def test_dm_control_names_of_today_and_of_old(env, resolved):
    assert resolve_id(env) == (resolved, None)


def test_a_missing_dm_control_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "dm_control", None)
    with pytest.raises(UsageError, match=r"pip install 'interreplay\[dmc\]'"):
        make_env("dmc/walker_walk")


def test_a_class_or_function_of_a_module_makes_the_environment(tmp_path, monkeypatch):
    (tmp_path / "mine_of_test.py").write_text(
        "from tests.fake_envs import ChainEnv\n"
        "class Mine(ChainEnv): pass\n"
        "class Picky(ChainEnv):\n    def __init__(self, size): pass\n"
        "def made(): return Mine()\n"
        "def other(): return 3\n"
        "number = 3\n"
    )
    monkeypatch.chdir(tmp_path)  # importable from the current directory alone
    monkeypatch.setattr(
        sys, "path", [p for p in sys.path if p not in ("", str(tmp_path))] + [str(ROOT)]
    )
    for name in ("Mine", "made"):
        assert type(make_env(f"mine_of_test:{name}").unwrapped).__name__ == "Mine"
    env = make_env("mine_of_test:Mine", horizon=4)
    env.reset(seed=0)
    assert [env.step(np.zeros(1))[3] for _ in range(4)] == [False, False, False, True]
    for name, message in {
        "Picky": "can't be built without arguments .*missing 1 required",
        "other": "makes a int, not a gymnasium.Env",
        "number": "names a int, not a class",
        "Mien": "did you mean Mine",
    }.items():
        with pytest.raises(UsageError, match=message):
            make_env(f"mine_of_test:{name}")


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
        pytest.param("dmc/walker_wlak", "did you mean dmc/walker_walk", marks=needs_dm_control),
        pytest.param(
            "dmc.dm_control_configs.moon_walk", "unknown environment", marks=needs_dm_control
        ),
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
        check_first_step(env, "WrongShape-v0")


class Returning(tests.fake_envs.ChainEnv):
    """Replaces what reset (two values) or step (five values) returns, by position."""

    def __init__(self, method="step", place=None, value=None):
        super().__init__()
        self.method, self.place, self.value = method, place, value

    def _replaced(self, method, returned):
        if method != self.method:
            return returned
        if self.place is None:
            return self.value
        return *returned[: self.place], self.value, *returned[self.place + 1 :]

    def reset(self, *, seed=None, options=None):
        return self._replaced("reset", super().reset(seed=seed))

    def step(self, action):
        return self._replaced("step", super().step(action))


def made(monkeypatch, env, name="returning"):
    monkeypatch.setattr(tests.fake_envs, name, lambda: env, raising=False)
    return make_env(f"tests.fake_envs:{name}", horizon=9)


@pytest.mark.parametrize(
    ("method", "place", "value", "message"),
    [
        ("reset", None, np.zeros(2), r"an array of shape \(2,\) from reset, not the pair"),
        ("reset", 0, np.zeros(3), r"observation of shape \(3,\) but its space has shape \(2,\)"),
        ("reset", 0, [[1], [2, 3]], "a list of 2 as its observation"),
        ("reset", 1, None, "None as the info of its reset"),
        ("step", None, (np.zeros(2), 0.0, False, {}), "a tuple of 4 from step, not"),
        ("step", 0, np.zeros((1, 2)), r"observation of shape \(1, 2\)"),
        ("step", 0, np.array(["a", "b"]), "of type ndarray as its observation"),
        ("step", 1, np.zeros(2), r"an array of shape \(2,\) as its reward"),
        ("step", 1, None, "None as its reward"),
        ("step", 2, 1, "1 as terminated, which must be True or False"),
        ("step", 3, np.array([True]), r"an array of shape \(1,\) as truncated"),
        ("step", 4, [], "a list of 0 as the info of its step"),
    ],
)
def test_what_contradicts_gymnasiums_form_is_one_sentence(
    method, place, value, message, monkeypatch
):
    env = made(monkeypatch, Returning(method, place, value))
    with pytest.raises(UsageError, match=f"^tests.fake_envs:returning returned .*{message}"):
        check_first_step(env, "")


def test_a_fault_in_a_wrapper_of_the_environment_is_found_too(monkeypatch):
    stretched = gym.wrappers.TransformObservation(
        tests.fake_envs.ChainEnv(), lambda obs: np.append(obs, 0.0), tests.fake_envs._BOX
    )
    with pytest.raises(UsageError, match=r"shape \(3,\) but its space has shape \(2,\)"):
        check_first_step(made(monkeypatch, stretched), "")


class Shifting(tests.fake_envs.ChainEnv):
    """Has wider actions from its second episode on."""

    def reset(self, *, seed=None, options=None):
        if self.episode == 1:
            self.action_space = gym.spaces.Box(-3, 3, (1,))
        return super().reset(seed=seed)


def test_an_action_space_that_changes_is_refused(monkeypatch):
    env = made(monkeypatch, Shifting())
    env.reset(seed=0)
    with pytest.raises(UsageError, match="returning changed its action space from Box.* to Box"):
        env.reset()


def test_a_reset_of_the_old_gym_is_refused(monkeypatch):
    class Old(tests.fake_envs.ChainEnv):
        def reset(self):
            return super().reset()[0]

    with pytest.raises(UsageError, match="returning can't be seeded .* seed and options"):
        check_first_step(made(monkeypatch, Old()), "")


def test_an_environments_own_type_error_stays_what_it_is(monkeypatch):
    class Buggy(tests.fake_envs.ChainEnv):
        def reset(self, *, seed=None, options=None):
            return len(3)

    with pytest.raises(TypeError, match="has no len"):
        check_first_step(made(monkeypatch, Buggy()), "")


@pytest.mark.parametrize("form", [np.atleast_1d, lambda x: np.full((1, 1), x), np.float32])
def test_a_reward_of_one_number_is_taken_in_any_form(form, monkeypatch):
    class Formed(tests.fake_envs.ChainEnv):
        def step(self, action):
            obs, reward, *rest = super().step(action)
            return obs, form(reward), *rest

    monkeypatch.setattr(tests.fake_envs, "Formed", Formed, raising=False)
    envs = make_vector_env("tests.fake_envs:Formed", 2, horizon=9)
    envs.reset(seed=0)
    rewards = [envs.step(np.zeros((2, 1)))[1].tolist() for _ in range(4)]
    assert rewards == [[1, 1], [2, 2], [3, 3], [4, 4]]  # ChainEnv's is the time


@pytest.mark.parametrize("env", ["Chain-v0", "HalfCheetah-v5"])
def test_only_the_first_step_is_checked(env):
    built = make_env(env)
    layers = [built]
    while isinstance(layers[-1], gym.Wrapper):
        layers.append(layers[-1].env)
    assert len(layers) > 2
    assert all("step" in vars(layer) for layer in layers)
    built.reset(seed=0)
    built.step(built.action_space.sample())
    assert not any("step" in vars(layer) for layer in layers)  # their classes' own again


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
