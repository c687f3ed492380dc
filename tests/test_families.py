import json
import random
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import gymnasium as gym
import mujoco
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from scipy import stats

from interreplay.environments import in_gymnasium, make_env, make_vector_env, resolve_id
from interreplay.environments.families import (
    FAMILIES,
    Task,
    ant,
    cheetah,
    environment_id,
    find_family,
    humanoid,
    load_tasks,
    rand_params,
    save_tasks,
)
from interreplay.environments.families.__main__ import main, table
from interreplay.environments.families.bodies import Motion
from interreplay.environments.families.rewards import Rewards
from interreplay.errors import UsageError

ROOT = Path(__file__).parents[1]
RANDOM = [
    name
    for name, f in FAMILIES.items()
    if f.tasks(2, 0) != [Task(name, t.index, 0, t.parameters) for t in f.tasks(2, 1)]
]
SIMULATED = [name for name, family in FAMILIES.items() if "mujoco" in family.needs]


def env_of(name, index=0, **options):
    family = find_family(name)
    return family.make_env(family.tasks()[index], **options)


def with_parameters(name, **parameters):
    return find_family(name).make_env(Task(name, 0, 0, parameters))


def assert_uniform(values, low, high):
    """Kolmogorov and Smirnov's test.

    Some twenty comparisons at 1e-4 raise a false alarm in .2 % of seeds; with a thousand values a
    distribution function that is off by .08 anywhere is caught, with ten thousand one by .025.
    """
    assert np.size(values) >= 1000
    assert stats.kstest(np.ravel(values), stats.uniform(low, high - low).cdf).pvalue > 1e-4


def rollout(env, steps, seed=0):
    rng = np.random.default_rng(5)
    env.reset(seed=seed)
    low, high = env.action_space.low, env.action_space.high
    return np.array([env.step(rng.uniform(low, high).astype(np.float32))[0] for _ in range(steps)])


# -- every family


def test_every_row_of_the_specification_is_registered():
    rows = "point-robot sparse-point-robot point-robot-wind cheetah-vel cheetah-dir ant-dir ant-goal humanoid-dir walker-rand-params hopper-rand-params"
    sparse = "sparse-walker-rand-params sparse-cheetah-vel sparse-cheetah-dir sparse-ant-dir"
    latest = "cheetah-vel cheetah-dir ant-dir walker-rand-params hopper-rand-params"
    wanted = {*rows.split(), *sparse.split(), *(f"{name}-latest" for name in latest.split())}
    assert wanted | {"ant-dir-fwd-back"} == set(FAMILIES)
    assert {name for name, family in FAMILIES.items() if family.reported == "sparse"} == {
        *sparse.split(),
        "sparse-point-robot",
    }


@pytest.mark.parametrize("name", FAMILIES)
def test_gymnasiums_checker_passes(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Positions and velocities have no bounds; a stride of .1 is no action in [-1, 1]; ids are
        # ours, so the checker has no Gymnasium id to render by.
        for known in ("space (min|max)imum value", "symmetric and normalized", "not having a spec"):
            warnings.filterwarnings("ignore", message=f".*{known}.*")
        check_env(env_of(name).unwrapped)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_time_limit_truncates_and_a_seed_repeats_the_episode(name):
    env, twin = env_of(name, horizon=3), env_of(name)
    np.testing.assert_array_equal(rollout(env, 3), rollout(twin, 3))
    env.reset(seed=1)
    ends = [env.step(np.zeros(env.action_space.shape))[2:4] for _ in range(3)]
    assert ends == [(False, False), (False, False), (False, True)]
    assert (env.reset(seed=1)[0] == env.reset(seed=1)[0]).all()


def test_time_limits_are_the_specifications():
    limits = {name: family.horizon for name, family in FAMILIES.items()}
    points = {"point-robot": 20, "sparse-point-robot": 20, "point-robot-wind": 25}
    assert limits == {**dict.fromkeys(FAMILIES, 200), **points}
    env = env_of("cheetah-vel")
    env.reset(seed=0)
    ends = [env.step(np.zeros(6))[2:4] for _ in range(200)]
    assert ends == [(False, False)] * 199 + [(False, True)]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_seed_gives_the_same_tasks_and_leaves_global_generators_alone(name):
    random.seed(3)
    np.random.seed(3)  # noqa: NPY002
    before = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    family = FAMILIES[name]
    tasks = family.tasks(2, seed=4)
    assert tasks == family.tasks(2, seed=4)
    rollout(family.make_env(tasks[0]), 2)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before  # noqa: NPY002


@pytest.mark.parametrize("name", RANDOM)
def test_random_tasks_differ_and_a_longer_list_begins_with_the_shorter(name):
    family = FAMILIES[name]
    assert family.tasks(5, seed=1) == family.tasks(12, seed=1)[:5]
    values = [json.dumps(task.parameters) for task in family.tasks(12, seed=1)]
    assert len(set(values)) == 12


def test_only_listed_families_have_nothing_to_draw():
    fixed = {"sparse-point-robot", "ant-dir-fwd-back", "sparse-ant-dir"}
    fixed |= {"cheetah-dir", "sparse-cheetah-dir", "cheetah-dir-latest"}
    assert set(FAMILIES) - set(RANDOM) == fixed


def test_tasks_survive_a_file(tmp_path):
    for name, family in FAMILIES.items():
        tasks = family.tasks(2, seed=7)
        save_tasks(tmp_path / f"{name}.json", tasks)
        assert load_tasks(tmp_path / f"{name}.json") == tasks
        assert (
            json.loads((tmp_path / f"{name}.json").read_text())[1]["parameters"]
            == tasks[1].parameters
        )
    assert len(list(tmp_path.iterdir())) == len(FAMILIES)  # no unfinished ones


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[{]", "is not JSON"),
        ("{}", "holds no list of tasks"),
        ('[{"family": "point-robot", "index": "0"}]', "'index' is '0', not of type int"),
        ('[{"family": "a", "index": 0, "seed": 0, "parameters": {}, "x": 1}]', "unknown field x"),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path, text, message):
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(UsageError, match=message):
        load_tasks(tmp_path / "t.json")
    with pytest.raises(UsageError, match="can't be read"):
        load_tasks(tmp_path / "none.json")
    with pytest.raises(UsageError, match="can't be written"):
        save_tasks(tmp_path / "t.json" / "x.json", [])


def test_malformed_tasks_are_refused():
    for parameters, message in [
        ({"velocity": "fast"}, "must be finite numbers"),
        ({"velocity": [1.0]}, r"of shape \(\)"),
        ({"velocity": float("nan")}, "must be finite"),
        ({"speed": 1.0}, "has the parameters velocity, not speed"),
    ]:
        with pytest.raises(UsageError, match=message):
            with_parameters("cheetah-vel", **parameters)
    with pytest.raises(UsageError, match="variants don't share tasks"):
        find_family("cheetah-vel").make_env(find_family("cheetah-vel-latest").tasks()[0])
    with pytest.raises(UsageError, match="ask for dense or sparse"):
        env_of("point-robot", reward="both")
    for name in ("point-robot", "cheetah-vel"):
        with pytest.raises(UsageError, match="render mode 'ascii'"):
            env_of(name, render_mode="ascii")


def test_numbers_of_tasks_are_those_of_the_experiments():
    counts = {name: (f.n_tasks, f.n_train, f.n_eval) for name, f in FAMILIES.items()}
    two = (2, 2, 2)
    assert (
        counts["sparse-point-robot"]
        == counts["cheetah-vel"]
        == counts["humanoid-dir"]
        == (100, 80, 20)
    )
    assert counts["point-robot-wind"] == counts["walker-rand-params"] == (50, 40, 10)
    assert counts["hopper-rand-params"] == (50, 40, 10)
    assert counts["cheetah-dir"] == counts["ant-dir-fwd-back"] == counts["sparse-ant-dir"] == two
    assert counts["ant-goal"] == (180, 150, 30)
    assert {counts[name] for name in FAMILIES if name.endswith("-latest")} == {(40, 20, 20)}
    with pytest.raises(UsageError, match="has 2 tasks and no more, but 3"):
        find_family("cheetah-dir").tasks(3)
    with pytest.raises(UsageError, match="ask for 1 or more"):
        find_family("cheetah-dir").tasks(0)


def test_a_split_holds_out_tasks_of_everywhere():
    train, held_out = find_family("cheetah-vel").split()
    assert (train, held_out) == (list(range(80)), list(range(80, 100)))
    half_circle = find_family("sparse-point-robot")
    train, held_out = half_circle.split(seed=1)
    assert sorted(train + held_out) == list(range(100))
    # By angle these would be the last twenty; a shuffle leaves some in each third.
    assert len({k // 34 for k in held_out}) == 3
    assert half_circle.split(seed=1) == (train, held_out) != half_circle.split(seed=2)
    assert find_family("ant-dir-fwd-back").split() == ([0, 1], [0, 1])
    with pytest.raises(UsageError, match="can't be taken from 5"):
        half_circle.split(5, 6, 1)


# -- rewards


def test_the_sparse_reward_starts_at_the_threshold():
    near = Rewards(-0.2)
    of_near = [near(r)[1]["reward_sparse"] for r in (-0.0, -0.05, -0.2, -0.21)]
    assert of_near == pytest.approx([1, 0.75, 0, 0])
    assert [Rewards(0.5)(r)[1]["reward_sparse"] for r in (0.5, 1.0, 2.0, 0.4)] == [0, 1, 3, 0]
    assert Rewards(0.5)(2.0)[0] == 2
    assert Rewards(0.5, "sparse")(2.0)[0] == 3


@pytest.mark.parametrize("name", FAMILIES)
def test_one_reward_drives_and_info_has_both(name):
    dense, sparse = env_of(name), env_of(name, reward="sparse")
    dense.reset(seed=0), sparse.reset(seed=0)
    action = np.zeros(dense.action_space.shape, np.float32)
    (_, of_dense, *_, info), (_, of_sparse, *_, other) = dense.step(action), sparse.step(action)
    assert info == other
    assert (of_dense, of_sparse) == (info["reward_dense"], info["reward_sparse"])
    terms = [v for k, v in info.items() if k.startswith("reward_")][:-2]
    if name in SIMULATED:
        assert of_dense == pytest.approx(sum(terms))


# -- point robots


def test_a_point_robot_walks_by_clipped_strides():
    env = with_parameters("sparse-point-robot", goal=[0.3, 0.4])
    obs, _ = env.reset(seed=0)
    assert obs.tolist() == [0, 0]
    obs, reward, *_, info = env.step(np.array([0.1, -7.0], np.float32))
    assert obs == pytest.approx([0.1, -0.1])
    assert reward == pytest.approx(-np.sqrt(0.2**2 + 0.5**2))
    assert info["reward_sparse"] == 0
    env = with_parameters("sparse-point-robot", goal=[0.1, 0.05])
    env.reset(seed=0)
    *_, info = env.step(np.array([0.1, 0.0], np.float32))
    assert info["reward_sparse"] == pytest.approx((0.2 - 0.05) / 0.2)


def test_starts_of_point_robots():
    env = env_of("point-robot")
    assert_uniform([env.reset(seed=k)[0] for k in range(2000)], -1, 1)
    for name in ("sparse-point-robot", "point-robot-wind"):
        assert env_of(name).reset(seed=4)[0].tolist() == [0, 0]


def test_the_wind_blows_in_every_step():
    env = with_parameters("point-robot-wind", wind=[0.02, -0.05])
    env.reset(seed=0)
    env.step(np.array([0.1, 0.1]))
    obs, reward, *_ = env.step(np.array([0.1, 0.0]))
    assert obs == pytest.approx([0.24, 0.0])
    assert reward == pytest.approx(-0.76)


@pytest.mark.parametrize(("index", "best"), [(0, 11.5), (1, 0.242641 + 0.949748 + 13), (2, 11.5)])
def test_the_greedy_walk_earns_what_it_should(index, best):
    # To (1, 0): nothing up to .8, then .5, then 1 from the tenth step on. To 45 degrees: .151472
    # away after six steps, .010051 after seven, there from the eighth on.
    family = find_family("sparse-point-robot")
    env = family.make_env(family.tasks(5)[index])
    obs, _ = env.reset(seed=0)
    total, truncated = 0.0, False
    while not truncated:
        action = np.clip(env.unwrapped.goal - obs, -0.1, 0.1)
        obs, _, _, truncated, info = env.step(action)
        total += info["reward_sparse"]
    assert total == pytest.approx(best, abs=1e-5)


def test_half_circle_goals():
    goals = [task.parameters["goal"] for task in find_family("sparse-point-robot").tasks(5)]
    root = np.sqrt(0.5)
    expected = [[1, 0], [root, root], [0, 1], [-root, root], [-1, 0]]
    np.testing.assert_allclose(goals, expected, atol=1e-12)


def test_goals_and_winds_are_uniform():
    for name, parameter, limit in [("point-robot", "goal", 1), ("point-robot-wind", "wind", 0.05)]:
        values = np.ravel([t.parameters[parameter] for t in find_family(name).tasks(5000)])
        assert_uniform(values, -limit, limit)


def test_a_point_robots_picture_shows_robot_goal_and_wind():
    env = with_parameters("sparse-point-robot", goal=[1.0, 0.0])
    assert env.render() is None
    family = find_family("point-robot-wind")
    env = family.make_env(Task(family.name, 0, 0, {"wind": [0.0, 0.05]}), "rgb_array")
    env.reset(seed=0)
    env.step(np.array([-0.1, 0.1]))
    picture = env.render()
    assert (picture.shape, picture.dtype) == ((320, 320, 3), np.uint8)

    def centre(colour):  # in the plane: 2.8 wide, y upwards
        rows, columns = np.nonzero((picture == colour).all(-1))
        return columns.mean() / 320 * 2.8 - 1.4, 1.4 - rows.mean() / 320 * 2.8

    assert centre((200, 62, 48)) == pytest.approx((-0.1, 0.15), abs=0.02)
    assert centre((46, 139, 87)) == pytest.approx((1, 0), abs=0.02)
    assert centre((60, 110, 190))[1] > 0.15  # the wind points upwards from the robot


# -- cheetahs, ants and humanoids


def motion(velocity, action, **data):
    return Motion(np.array(velocity, float), np.array(action, float), SimpleNamespace(**data))


def total(rules, step):
    return sum(rules.terms(step).values())


def test_the_cheetahs_rewards():
    step = motion([2.5], [1, -1, 0.5, 0, 0, 0])  # a^2 = 2.25
    assert total(cheetah.at_velocity({"velocity": 1.0}), step) == pytest.approx(-1.5 - 0.1125)
    assert total(cheetah.at_velocity({"velocity": 3.0}), step) == pytest.approx(-0.5 - 0.1125)
    assert total(cheetah.in_direction({"direction": 1.0}), step) == pytest.approx(2.5 - 0.1125)
    assert total(cheetah.in_direction({"direction": -1.0}), step) == pytest.approx(-2.5 - 0.1125)


def test_a_cheetahs_velocity_and_observation():
    env = with_parameters("cheetah-vel", velocity=1.0)
    obs, _ = env.reset(seed=0)
    data = env.unwrapped.data
    before = data.qpos[0]
    for _ in range(4):
        before = data.qpos[0]
        obs, *_, info = env.step(np.full(6, 0.7, np.float32))
    assert info["reward_forward"] == pytest.approx(-abs((data.qpos[0] - before) / 0.05 - 1))
    assert obs.shape == (20,)
    np.testing.assert_array_equal(obs[:17], [*data.qpos[1:], *data.qvel])
    # The torso's joints slide from (0, 0, .7).
    np.testing.assert_allclose(obs[17:], [data.qpos[0], 0, data.qpos[1] + 0.7], atol=1e-12)


def test_speeds_and_angles_are_uniform():
    for name, parameter, high in [
        ("cheetah-vel", "velocity", 3),
        ("ant-dir", "angle", 2 * np.pi),
        ("humanoid-dir", "angle", 2 * np.pi),
    ]:
        values = [task.parameters[parameter] for task in find_family(name).tasks(5000)]
        assert_uniform(values, 0, high)
    both = [task.parameters["angle"] for task in find_family("ant-dir-fwd-back").tasks()]
    assert both == [0, np.pi]
    assert [t.parameters["direction"] for t in find_family("cheetah-dir").tasks()] == [1, -1]


def contacts(bodies):
    forces = np.zeros((bodies, 6))
    forces[1, :3] = [0.5, -8.0, 3.0]  # within ±1: .25 + 1 + 1; as they are: .25 + 64 + 9
    return forces


def test_the_ants_rewards():
    step = motion([1.0, 2.0], np.full(8, 0.5), cfrc_ext=contacts(14), qpos=np.array([1.0, -0.5, 0]))
    costs = 0.5 * 2 + 0.5e-3 * 2.25
    assert total(ant.in_direction({"angle": 0.0}), step) == pytest.approx(1 - costs + 1)
    assert total(ant.in_direction({"angle": np.pi / 2}), step) == pytest.approx(2 - costs + 1)
    assert total(ant.in_direction({"angle": np.pi}), step) == pytest.approx(-1 - costs + 1)
    assert total(ant.in_direction_latest({"angle": np.pi / 2}), step) == pytest.approx(2)
    distance = 2.0 + 1.5
    expected = -distance - 0.1 * 2 - 0.5e-3 * 2.25
    assert total(ant.to_goal({"goal": [3.0, 1.0]}), step) == pytest.approx(expected)


def test_ants_goals_fill_the_disc():
    goals = np.array([t.parameters["goal"] for t in find_family("ant-goal").tasks(5000)])
    radii, angles = np.linalg.norm(goals, axis=1), np.arctan2(goals[:, 1], goals[:, 0])
    assert_uniform((radii / 3) ** 2, 0, 1)  # even over the area
    assert_uniform(angles, -np.pi, np.pi)


@pytest.mark.parametrize(
    ("height", "ends"), [(0.19, True), (0.2, False), (1.0, False), (1.01, True), (np.nan, True)]
)
def test_an_ant_ends_outside_its_heights(height, ends):
    data = SimpleNamespace(qpos=np.array([0, 0, height]), qvel=np.zeros(3))
    assert ant.in_direction({"angle": 0.0}).ended(data) is ends
    assert ant.in_direction_latest({"angle": 0.0}).ended(data) is False
    assert ant.to_goal({"goal": [0, 0]}).ended(data) is False


def test_an_ant_moves_as_its_reward_says():
    env = with_parameters("ant-dir", angle=np.pi / 2)
    obs, _ = env.reset(seed=0)
    data = env.unwrapped.data
    before = data.qpos[1]
    obs, *_, info = env.step(np.full(8, 0.4, np.float32))
    assert info["reward_forward"] == pytest.approx((data.qpos[1] - before) / 0.05)
    np.testing.assert_array_equal(obs, [*data.qpos[2:], *data.qvel])
    obs = env_of("ant-goal").reset(seed=0)[0]
    assert obs.shape == (15 + 14 + 14 * 6,)
    assert np.abs(obs[29:]).max() <= 1


def test_contact_forces_of_a_standing_ant_cost_something():
    env = with_parameters("ant-goal", goal=[0.0, 0.0])
    env.reset(seed=0)
    costs = [env.step(np.zeros(8, np.float32))[4]["reward_contact"] for _ in range(40)]
    assert min(costs) < 0
    assert min(costs) >= -0.5e-3 * 14 * 6


def test_the_humanoids_reward():
    step = motion([1.0, 2.0], [0.0], ctrl=np.array([0.2, -0.4]), cfrc_ext=contacts(14))
    expected = 0.25 * 5 * 2 - 0.1 * 0.2 - 0.5e-6 * 73.25 + 5
    assert total(humanoid.in_direction({"angle": np.pi / 2}), step) == pytest.approx(expected)
    step.data.cfrc_ext[2, 0] = 1e5  # 5,000 before the limit
    expected = 0.25 * 5 * 1 - 0.1 * 0.2 - 10 + 5
    assert total(humanoid.in_direction({"angle": 0.0}), step) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("height", "ends"), [(0.99, True), (1.0, False), (2.0, False), (2.01, True)]
)
def test_a_humanoid_ends_outside_its_heights(height, ends):
    rules = humanoid.in_direction({"angle": 0.0})
    assert rules.ended(SimpleNamespace(qpos=np.array([0, 0, height]))) is ends


def test_a_humanoids_centre_of_mass_moves_as_its_reward_says():
    env = with_parameters("humanoid-dir", angle=0.0)
    obs, _ = env.reset(seed=0)
    model, data = env.unwrapped.model, env.unwrapped.data

    def centre():  # MuJoCo's own: the centre of everything under the world
        fresh = mujoco.MjData(model)
        fresh.qpos[:] = data.qpos
        mujoco.mj_forward(model, fresh)
        return fresh.subtree_com[0, 0]

    before = centre()
    obs, *_, info = env.step(np.full(17, 0.3, np.float32))
    assert info["reward_forward"] == pytest.approx(0.25 * (centre() - before) / 0.003)
    assert obs.shape == (376,)
    np.testing.assert_array_equal(obs[:45], [*data.qpos[2:], *data.qvel])
    np.testing.assert_array_equal(obs[-84:], data.cfrc_ext.ravel())


# -- bodies that differ


# The specification's: each element times base^U(-3, 3).
BASES = {"body_mass": 1.5, "body_inertia": 1.5, "geom_friction": 1.5, "dof_damping": 1.3}


def numbers(task):
    return np.concatenate([np.ravel(values) for values in task.parameters.values()])


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("walker-rand-params", 65),
        ("sparse-walker-rand-params", 65),
        ("hopper-rand-params", 41),
        ("walker-rand-params-latest", 32),
        ("hopper-rand-params-latest", 20),
    ],
)
def test_multipliers_are_log_uniform_and_as_many_as_the_model_has(name, count):
    family = find_family(name)
    tasks = family.tasks(200)
    assert {len(numbers(task)) for task in tasks} == {count}
    for array, base in BASES.items():
        if array not in tasks[0].parameters:
            continue
        drawn = np.log([task.parameters[array] for task in tasks]) / np.log(base)
        assert_uniform(drawn, -3, 3)
        columns = drawn.reshape(200, -1)  # each element on its own, none a copy of another
        between = np.corrcoef(columns.T)[~np.eye(columns.shape[1], dtype=bool)]
        assert np.abs(between).max() < 0.35  # five standard deviations of 200 independent pairs
    model = family.make_env(tasks[0]).unwrapped.model
    for array, values in tasks[0].parameters.items():
        assert np.shape(values) == getattr(model, array).shape


@pytest.mark.parametrize("name", [n for n in SIMULATED if "rand-params" in n])
def test_the_model_is_gymnasiums_times_the_multipliers(name):
    family = find_family(name)
    task = family.tasks()[1]
    env = family.make_env(task).unwrapped
    plain = gym.make("Walker2d-v5" if "walker" in name else "Hopper-v5").unwrapped.model
    for array in BASES:
        factors = np.array(task.parameters.get(array, 1.0))
        np.testing.assert_allclose(getattr(env.model, array), getattr(plain, array) * factors)
    # What follows from the masses was recomputed.
    assert env.model.body_subtreemass[0] == pytest.approx(env.model.body_mass.sum())
    assert env.model.body_subtreemass[0] != pytest.approx(plain.body_subtreemass[0])
    assert (env.model.opt.timestep, env.frame_skip) == (0.004, 4)
    assert env.model.opt.integrator == mujoco.mjtIntegrator.mjINT_RK4
    assert env.dt == pytest.approx(0.016)


@pytest.mark.parametrize("name", [n for n in SIMULATED if "rand-params" in n])
def test_tasks_move_differently_and_keep_nothing_of_each_other(name):
    family = find_family(name)
    one, other = family.tasks(2)
    env = family.make_env(one)
    first = rollout(env, 8)
    second_env = family.make_env(other)
    second = rollout(second_env, 8)
    assert np.abs(first - second).max() > 0.01
    # The first again, after the second was made, run and reset; and in a fresh object.
    np.testing.assert_array_equal(rollout(env, 8), first)
    np.testing.assert_array_equal(rollout(family.make_env(one), 8), first)
    np.testing.assert_array_equal(rollout(second_env, 8), second)


def test_starts_of_walkers_and_hoppers_are_near_rest():
    for name in ("walker-rand-params", "hopper-rand-params-latest"):
        env = env_of(name).unwrapped
        rest = np.concatenate([[0, 1.25], np.zeros(env.model.nq - 2 + env.model.nv)])
        states = []
        for seed in range(200):
            env.reset(seed=seed)
            states.append([*env.data.qpos, *env.data.qvel] - rest)
        assert_uniform(states, -0.005, 0.005)


def test_the_walkers_and_hoppers_rewards():
    step = motion([1.5], [1, -1, 0.5])  # a^2 = 2.25
    none = {}
    for rules in (
        rand_params.walker(none),
        rand_params.hopper(none),
        rand_params.walker_latest(none),
    ):
        assert total(rules, step) == pytest.approx(1.5 + 1 - 0.00225)
    assert total(rand_params.hopper_latest(none), step) == pytest.approx(1.5 - 0.00225)
    env = env_of("walker-rand-params")
    env.reset(seed=0)
    before = env.unwrapped.data.qpos[0]
    *_, info = env.step(np.full(6, 0.3, np.float32))
    assert info["reward_forward"] == pytest.approx((env.unwrapped.data.qpos[0] - before) / 0.016)


@pytest.mark.parametrize(
    ("height", "lean", "walker", "hopper"),
    [
        (1.25, 0.0, False, False),
        (0.81, 0.0, False, False),
        (0.8, 0.0, True, False),
        (0.7, 0.0, True, True),
        (0.71, 0.19, True, False),
        (1.25, 0.2, False, True),
        (1.25, -0.2, False, True),
        (1.25, 0.99, False, True),
        (1.25, 1.0, True, True),
        (1.25, -1.0, True, True),
        (1.99, 0.0, False, False),
        (2.0, 0.0, True, False),
        (np.nan, 0.0, True, True),
    ],
)
def test_walkers_and_hoppers_end_when_they_fall(height, lean, walker, hopper):
    data = SimpleNamespace(qpos=np.array([500.0, height, lean, 0.0]), qvel=np.zeros(4))
    assert bool(rand_params.walker({}).ended(data)) is walker
    assert bool(rand_params.hopper({}).ended(data)) is hopper
    assert bool(rand_params.hopper_latest({}).ended(data)) is False


@pytest.mark.parametrize(
    ("height", "ends"), [(0.5, True), (0.51, False), (0.7, False), (3.0, False)]
)
def test_the_latest_walker_ends_near_the_ground_alone(height, ends):
    data = SimpleNamespace(qpos=np.array([0, height, 1.4]), qvel=np.zeros(3))
    assert rand_params.walker_latest({}).ended(data) is ends


def test_a_hopper_ends_when_its_state_bursts():
    data = SimpleNamespace(qpos=np.array([500.0, 1.25, 0.0, 99.0]), qvel=np.array([0, -99.0]))
    assert rand_params.hopper({}).ended(data) is False
    data.qvel[1] = -100.0
    assert rand_params.hopper({}).ended(data) is True


def test_observations_of_walkers_and_hoppers():
    for name, size in [("walker-rand-params", 17), ("hopper-rand-params", 11)]:
        env, latest = env_of(name).unwrapped, env_of(f"{name}-latest").unwrapped
        qpos = np.linspace(1, 2, env.model.nq)
        qvel = np.linspace(-20, 20, env.model.nv)
        for each in (env, latest):
            each.set_state(qpos, qvel)
        obs = env.rules.observe(env.data)
        assert obs.shape == env.observation_space.shape == (size,)
        assert obs.tolist() == [*qpos[1:], *np.clip(qvel, -10, 10)]
        assert latest.observation_space.shape == (size + 1,)
        assert latest.rules.observe(latest.data).tolist() == [*qpos, *qvel]


# -- names and ids


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "cheetah-vle",
            {},
            "unknown task family 'cheetah-vle': the nearest known name is cheetah-vel$",
        ),
        ("walker_rand_params", {}, "nearest known name is walker-rand-params$"),
        ("ant-goal", {"variant": "latest"}, "unknown task family 'ant-goal-latest'"),
        ("cheetah-dir", {"forward_backward": True}, "is of ant-dir alone"),
    ],
)
def test_an_unknown_family_names_the_nearest(name, options, message):
    with pytest.raises(UsageError, match=message):
        find_family(name, **options)


def test_a_variant_or_direction_picks_the_family_of_its_own():
    assert find_family("ant-dir", variant="latest").name == "ant-dir-latest"
    assert find_family("ant-dir-latest", variant="latest").name == "ant-dir-latest"
    assert find_family("ant-dir", forward_backward=True).name == "ant-dir-fwd-back"
    assert find_family("sparse-ant-dir", forward_backward=True).name == "sparse-ant-dir"


def test_an_id_names_a_task_of_the_seeded_list():
    env = make_env("focal/cheetah-vel/3")
    wanted = find_family("cheetah-vel").tasks(100, seed=0)[3].parameters["velocity"]
    env.reset(seed=0)
    x = env.unwrapped.data.qpos[0]
    _, reward, *_, info = env.step(np.zeros(6, np.float32))
    speed = (env.unwrapped.data.qpos[0] - x) / 0.05
    assert info["reward_forward"] == pytest.approx(-abs(speed - wanted))
    assert reward == info["reward_dense"]
    assert resolve_id("focal/cheetah-vel/3") == ("focal/cheetah-vel/3", None)
    assert not in_gymnasium("focal/cheetah-vel/3")


def test_an_id_says_how_many_which_seed_and_which_reward():
    env = make_env("focal/sparse-point-robot/1/of5")
    assert env.unwrapped.goal == pytest.approx([np.sqrt(0.5)] * 2)
    name = environment_id("point-robot", 2, 4, 9, sparse=True)
    assert name == "focal/point-robot/2/of4/seed9/sparse"
    env = make_env(name, horizon=2)
    task = find_family("point-robot").tasks(4, seed=9)[2]
    assert env.unwrapped.goal.tolist() == task.parameters["goal"]
    env.reset(seed=0)
    _, reward, _, truncated, info = env.step(np.zeros(2))
    assert reward == info["reward_sparse"] != info["reward_dense"]
    assert [truncated, env.step(np.zeros(2))[3]] == [False, True]
    envs = make_vector_env("focal/point-robot/0", 2)
    assert envs.reset(seed=0)[0].shape == (2, 2)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ("focal/cheetah-vle/3", "nearest known name is cheetah-vel"),
        ("focal/cheetah-vle", "nearest known name is cheetah-vel"),
        ("focal/cheetah-vel", "such as focal/cheetah-vel/3"),
        ("focal/", "such as focal/cheetah-vel/3"),
        ("focal/cheetah-vel/100", "of 100 tasks the last is 99"),
        ("focal/cheetah-dir/2/of3", "has 2 tasks and no more"),
        ("focal/cheetah-vel/3/dense", "a task's id is focal/<family>/<task>"),
    ],
)
def test_an_id_of_no_task_is_refused(env, message):
    with pytest.raises(UsageError, match=message):
        make_env(env)


def test_a_missing_requirement_is_said_when_a_family_is_used(monkeypatch):
    tasks = find_family("ant-dir").tasks(1)
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(UsageError, match=r"ant-dir needs mujoco .*pip install 'mujoco"):
        find_family("ant-dir").make_env(tasks[0])
    env_of("point-robot").reset(seed=0)  # which needs nothing


def test_the_command_line_brings_a_familys_budget():
    from interreplay.launch.settings.resolution import parse

    settings, _ = parse(["--env", "focal/point-robot/3/of40"])
    assert (settings.learning_starts, settings.total_timesteps) == (500, 5000)
    settings, _ = parse(["--env", "focal/cheetah-vel/3"])
    assert (settings.learning_starts, settings.total_timesteps) == (10_000, 1_000_000)


# -- pictures, documentation and configurations


def test_mujoco_without_opengl_says_so(monkeypatch):
    env = env_of("cheetah-vel", render_mode="rgb_array")
    env.reset(seed=0)

    def fail(_):
        raise mujoco.FatalError("no OpenGL")

    monkeypatch.setattr(gym.envs.mujoco.MujocoEnv, "render", fail)
    with pytest.raises(UsageError, match="set MUJOCO_GL to egl or osmesa"):
        env.render()


def test_the_command_writes_tasks_and_refuses_in_a_sentence(tmp_path, capsys):
    out = tmp_path / "tasks.json"
    assert main(["--tasks", "ant-goal", "--count", "3", "--seed", "2", "--out", str(out)]) == 0
    assert load_tasks(out) == find_family("ant-goal").tasks(3, seed=2)
    other = tmp_path / "other.json"
    for argv in (["--tasks", "ant-gaol"], ["--tasks", "ant-goal", "--seed", "-1"]):
        assert main([*argv, "--out", str(other)]) == 2
        assert capsys.readouterr().err.startswith("error: ")
    assert not other.exists()


def test_the_documentation_holds_the_table():
    assert table() in (ROOT / "docs" / "focal-tasks.md").read_text()


# Section 2's table: train, eval, updates per iteration, context, meta-batch, alpha.
EXPERIMENTS = {
    "sparse-point-robot": (80, 20, 1000, 1024, 16, 500, 2000),
    "point-robot": (80, 20, 1000, 64, 16, 500, 2000),
    "point-robot-wind": (40, 10, 1000, 256, 16, 500, 2000),
    "cheetah-vel": (80, 20, 200, 100, 16, 50, 2000),
    "cheetah-dir": (2, 2, 2000, 256, 4, 500, 2000),
    "ant-dir": (2, 2, 4000, 256, 4, 1e6, 5e6),
    "humanoid-dir": (80, 20, 4000, 256, 16, 500, 2000),
    "ant-goal": (150, 30, 4000, 256, 10, 500, 2000),
    "walker_rand_params": (40, 10, 4000, 100, 16, 50, 1e4),
    "hopper_rand_params": (40, 10, 4000, 100, 16, 50, 1e4),
    "sparse-walker-rand-params": (40, 10, 4000, 100, 16, 1e4, 2e4),
    "sparse-cheetah-vel": (80, 20, 1000, 512, 16, 500, 2000),
    "sparse-cheetah-dir": (2, 2, 2000, 256, 4, 500, 2000),
    "sparse-ant-dir": (2, 2, 10000, 512, 4, 1e6, 5e6),
}
DEFAULTS = {
    "num_train_steps_per_itr": 2000,
    "embedding_batch_size": 64,
    "meta_batch": 16,
    "alpha_init": 500,
    "alpha_max": 2000,
}


def configuration(name):
    given = json.loads((ROOT / "configs" / f"{name}.json").read_text())
    env = given["env_params"]
    family = find_family(given["env_name"], forward_backward=env.get("forward_backward", False))
    return given, family


def test_every_experiment_has_its_configuration_and_no_other_has_one():
    for folder in (ROOT / "configs", ROOT / "configs" / "small"):
        tables = {file.stem: json.loads(file.read_text()) for file in folder.glob("*.json")}
        assert {name for name, table in tables.items() if "env_name" in table} == set(EXPERIMENTS)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_configurations_are_the_tables_rows(name):
    given, family = configuration(name)
    algo = given["algo_params"]
    tasks = (given.get("n_train_tasks", 2), given.get("n_eval_tasks", 2))
    assert (*tasks, *(algo.get(key, value) for key, value in DEFAULTS.items())) == EXPERIMENTS[name]
    assert not any(algo.get(key) == value for key, value in DEFAULTS.items())  # differences alone
    assert (family.n_train, family.n_eval) == tasks
    assert family.n_tasks == given["env_params"]["n_tasks"]
    assert given["env_params"].get("max_episode_steps", 200) == family.horizon
    assert algo.get("max_path_length", 200) == family.horizon
    assert algo.get("sparse_rewards", False) == (family.reported == "sparse")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_small_presets_are_smaller_and_of_the_same_family(name):
    full, family = configuration(name)
    small, same = configuration(f"small/{name}")
    assert same is family
    updates = [
        c["algo_params"].get("num_iterations", 500)
        * c["algo_params"].get("num_train_steps_per_itr", 2000)
        for c in (full, small)
    ]
    assert updates[1] < updates[0]
    assert small["net_size"] == 128
    # A split of that many exists.
    count = small["env_params"]["n_tasks"]
    train, held_out = family.split(
        count, small.get("n_train_tasks", 2), small.get("n_eval_tasks", 2)
    )
    assert len(set(train) | set(held_out)) == count


def test_behaviour_settings_name_known_families_and_settings():
    from argument_parser import FIELDS

    given = json.loads((ROOT / "configs" / "behaviour.json").read_text())
    assert set(given["families"]) <= set(FAMILIES)
    layers = [given["default"], given["point"], given["small"]]
    for named in given["families"].values():
        for layer in named:
            layers.append(given[layer] if isinstance(layer, str) else layer)
    for layer in layers:
        assert set(layer) <= set(given["default"])
        assert set(layer.get("training", {})) <= set(FIELDS)
    replays = {name for name, of in given["families"].items() if {"data": "replay"} in of}
    assert replays == {name for name in FAMILIES if name.endswith("-latest")}
    for layer in (given["default"], given["point"], given["small"]):
        steps, grid = layer["checkpoints"], layer["quality"]
        reached = range(steps["first"], steps["last"] + 1, steps["every"])
        assert all(step in reached for span in grid.values() for step in span)
        assert steps["last"] <= layer["training"]["total_timesteps"]
