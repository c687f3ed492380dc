"""Every task family by name. A `latest` variant or a sparse twin is a family of its own."""

import difflib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gymnasium as gym

from interreplay.environments.families import ant, cheetah, humanoid, points, rand_params
from interreplay.environments.families.bodies import Rules
from interreplay.environments.families.family import Build, TaskFamily
from interreplay.environments.families.rewards import Rewards
from interreplay.environments.families.task import Parameters
from interreplay.errors import UsageError


def _simulated(rules: Callable[[Parameters], Rules]) -> Build:
    def build(task: Parameters, rewards: Rewards, render_mode: str | None) -> gym.Env[Any, Any]:
        # Here and not above: the families are known, whatever is installed.
        from interreplay.environments.families.simulated import SimulatedEnv

        return SimulatedEnv(rules(task), rewards, render_mode)

    return build


_POINT_ROBOT = TaskFamily(
    "point-robot",
    draw=points.uniform_goals,
    build=points.scattered,
    horizon=20,
    n_train=80,
    n_eval=20,
    threshold=-0.2,
    task="goal U(-1, 1)^2",
    start="U(-1, 1)^2",
    reward="-distance",
    ends="never",
    observation="place: 2",
    needs=(),
)
_CHEETAH_VEL = TaskFamily(
    "cheetah-vel",
    draw=cheetah.velocities,
    build=_simulated(cheetah.at_velocity),
    horizon=200,
    n_train=80,
    n_eval=20,
    threshold=-0.1,
    task="speed w ~ U(0, 3)",
    start="Gymnasium's",
    reward="-abs(v - w) - .05 a^2",
    ends="never",
    observation="qpos[1:], qvel, torso's place: 20",
)
_CHEETAH_DIR = replace(
    _CHEETAH_VEL,
    name="cheetah-dir",
    draw=cheetah.both_directions,
    build=_simulated(cheetah.in_direction),
    n_train=2,
    n_eval=2,
    threshold=0.5,
    task="direction d: 1, -1",
    reward="d v - .05 a^2",
)
_ANT_DIR = TaskFamily(
    "ant-dir",
    draw=ant.angles,
    build=_simulated(ant.in_direction),
    horizon=200,
    n_train=80,
    n_eval=20,
    threshold=1.5,
    task="angle ~ U(0, 2 pi)",
    start="Gymnasium's",
    reward="v . d - .5 a^2 - .5e-3 contacts^2 + 1",
    ends="height outside [.2, 1]",
    observation="qpos[2:], qvel: 27",
)
_ANT_DIR_FWD_BACK = replace(
    _ANT_DIR,
    name="ant-dir-fwd-back",
    draw=ant.both_directions,
    n_train=2,
    n_eval=2,
    task="angle: 0, pi",
)
_WALKER = TaskFamily(
    "walker-rand-params",
    draw=rand_params.multipliers("walker"),
    build=_simulated(rand_params.walker),
    horizon=200,
    n_train=40,
    n_eval=10,
    threshold=0.5,
    task="65 multipliers: mass, inertia, friction 1.5^U(-3, 3), damping 1.3^U(-3, 3)",
    start="noise .005",
    reward="v + 1 - 1e-3 a^2",
    ends="height outside (.8, 2), abs(lean) >= 1",
    observation="qpos[1:], clipped qvel: 17",
)
_HOPPER = replace(
    _WALKER,
    name="hopper-rand-params",
    draw=rand_params.multipliers("hopper"),
    build=_simulated(rand_params.hopper),
    task="41 multipliers, as walker-rand-params",
    ends="height <= .7, abs(lean) >= .2, abs(state) >= 100",
    observation="qpos[1:], clipped qvel: 11",
)


def _sparse(family: TaskFamily, name: str, **changes: Any) -> TaskFamily:
    return replace(family, name=name, reported="sparse", **changes)


def _latest(family: TaskFamily, **changes: Any) -> TaskFamily:
    """As in the code base that FOCAL's own points to: 20 tasks to train on and 20 to test."""
    return replace(family, name=f"{family.name}-latest", n_train=20, n_eval=20, **changes)


_ALL = (
    _POINT_ROBOT,
    _sparse(
        _POINT_ROBOT,
        "sparse-point-robot",
        draw=points.half_circle_goals,
        build=points.from_origin,
        ordered=True,
        task="goal on the unit half circle, angles linspace(0, pi, n)",
        start="(0, 0)",
    ),
    replace(
        _POINT_ROBOT,
        name="point-robot-wind",
        draw=points.winds,
        build=points.windy,
        horizon=25,
        n_train=40,
        n_eval=10,
        task="wind U(-.05, .05)^2 added each step; goal (1, 0)",
        start="(0, 0)",
    ),
    _CHEETAH_VEL,
    _sparse(_CHEETAH_VEL, "sparse-cheetah-vel"),
    _latest(_CHEETAH_VEL),
    _CHEETAH_DIR,
    _sparse(_CHEETAH_DIR, "sparse-cheetah-dir"),
    _latest(_CHEETAH_DIR, draw=cheetah.directions, task="direction d: 1, -1 in turn"),
    _ANT_DIR,
    _ANT_DIR_FWD_BACK,
    _sparse(_ANT_DIR_FWD_BACK, "sparse-ant-dir"),
    _latest(
        _ANT_DIR,
        build=_simulated(ant.in_direction_latest),
        threshold=0.5,
        reward="v . d",
        ends="never",
    ),
    replace(
        _ANT_DIR,
        name="ant-goal",
        draw=ant.goals,
        build=_simulated(ant.to_goal),
        n_train=150,
        n_eval=30,
        threshold=-0.5,
        task="goal: radius 3 sqrt(U), angle U(0, 2 pi)",
        reward="-L1 distance - .1 a^2 - .5e-3 contacts^2",
        ends="never",
        observation="qpos, qvel, clipped contacts: 113",
    ),
    TaskFamily(
        "humanoid-dir",
        draw=ant.angles,
        build=_simulated(humanoid.in_direction),
        horizon=200,
        n_train=80,
        n_eval=20,
        threshold=6.0,
        task="angle ~ U(0, 2 pi)",
        start="Gymnasium's",
        reward="1.25 v . d - .1 ctrl^2 - min(.5e-6 contacts^2, 10) + 5, v the centre of mass's",
        ends="height outside [1, 2]",
        observation="qpos[2:], qvel, cinert, cvel, actuator and contact forces: 376",
    ),
    _WALKER,
    _sparse(_WALKER, "sparse-walker-rand-params"),
    _latest(
        _WALKER,
        draw=rand_params.multipliers("walker", rand_params.LATEST),
        build=_simulated(rand_params.walker_latest),
        task="32 multipliers: mass, friction 1.5^U(-3, 3)",
        ends="height <= .5",
        observation="qpos, qvel: 18",
    ),
    _HOPPER,
    _latest(
        _HOPPER,
        draw=rand_params.multipliers("hopper", rand_params.LATEST),
        build=_simulated(rand_params.hopper_latest),
        threshold=0.5,
        task="20 multipliers: mass, friction 1.5^U(-3, 3)",
        reward="v - 1e-3 a^2",
        ends="never",
        observation="qpos, qvel: 12",
    ),
)
FAMILIES: dict[str, TaskFamily] = {family.name: family for family in _ALL}


def find_family(
    name: str, *, variant: str | None = None, forward_backward: bool = False
) -> TaskFamily:
    """The family of that name.

    Args:
        name: as registered.
        variant: `latest` for the family of later papers; `<name>-latest` says the same.
        forward_backward: of ant-dir, only the directions 0 and pi; `ant-dir-fwd-back` says the
            same.

    Raises:
        UsageError: no such family, or no such variant of it; the sentence names the nearest one.
    """
    wanted = name
    if forward_backward and name == "ant-dir":
        wanted = _ANT_DIR_FWD_BACK.name
    elif forward_backward and name not in (_ANT_DIR_FWD_BACK.name, "sparse-ant-dir"):
        raise UsageError(f"forward_backward is of ant-dir alone; leave it out for {name}")
    if variant is not None and not wanted.endswith(f"-{variant}"):
        wanted = f"{wanted}-{variant}"
    if wanted not in FAMILIES:
        nearest = difflib.get_close_matches(wanted, FAMILIES, n=1, cutoff=0.0)[0]
        raise UsageError(f"unknown task family {wanted!r}: the nearest known name is {nearest}")
    return FAMILIES[wanted]
