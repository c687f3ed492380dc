"""dm_control's suite (arXiv 1801.00690) as Gymnasium environments with flat observations."""

from typing import Any

import gymnasium as gym
import numpy as np

from interreplay.errors import UsageError

# The tasks of the published comparison; the suite's others work by the same rule.
TASKS = (
    "acrobot_swingup",
    "ball_in_cup_catch",
    "cartpole_swingup",
    "cheetah_run",
    "finger_spin",
    "hopper_hop",
    "hopper_stand",
    "humanoid_walk",
    "pendulum_swingup",
    "quadruped_run",
    "quadruped_walk",
    "reacher_easy",
    "reacher_hard",
    "walker_run",
    "walker_walk",
)
PREFIX = "dmc/"
_OLD_PREFIX = "dmc.dm_control_configs."
_OLD_NAMES = {"cup_catch": "ball_in_cup_catch"}


def canonical(env: str) -> str | None:
    """`dmc/<domain>_<task>` for that form and for the old dotted one; None for any other id."""
    if env.startswith(_OLD_PREFIX):
        name = env.removeprefix(_OLD_PREFIX)
        return PREFIX + _OLD_NAMES.get(name, name)
    return env if env.startswith(PREFIX) else None


def load() -> tuple[Any, Any]:
    """The suite and the class that makes its environments Gymnasium's.

    Raises:
        UsageError: one of their packages is not installed.
    """
    try:
        from dm_control import suite
        from shimmy.dm_control_compatibility import DmControlCompatibilityV0
    except ImportError as error:
        raise UsageError(
            f"dmc/ environments need dm_control and shimmy ({error}): pip install "
            "'interreplay[dmc]' (pip install -e '.[dmc]' in a checkout)"
        ) from error
    _forget_fields_that_mujoco_dropped()
    return suite, DmControlCompatibilityV0


def _forget_fields_that_mujoco_dropped() -> None:
    """Let dm_control index what the installed mujoco has.

    dm_control 1.0.50 lists the arrays of mujoco 3.17's structures and looks each one up; mujoco 4
    has fewer (of soft bodies, which the suite has none of), and every model would fail to load.
    """
    import mujoco
    from dm_control.mujoco.wrapper.mjbindings import sizes

    for struct, kind in (("mjmodel", mujoco.MjModel), ("mjdata", mujoco.MjData)):
        fields = sizes.array_sizes[struct]
        for field in [name for name in fields if not hasattr(kind, name)]:
            del fields[field]


def known() -> list[str]:
    """Every task of the installed suite, as `dmc/<domain>_<task>`."""
    suite, _ = load()
    return [f"{PREFIX}{domain}_{task}" for domain, task in suite.ALL_TASKS]


def build(env: str, *, horizon: int | None = None, render_mode: str | None = None) -> gym.Env:
    """Build `dmc/<domain>_<task>`.

    Observations are the task's arrays one after the other in the order of their names, float32. The
    suite's own limit of 1,000 steps (`horizon` replaces it) truncates; it does not terminate.

    Raises:
        UsageError: dm_control is not installed.
    """
    suite, compatible = load()
    (pair,) = [p for p in suite.ALL_TASKS if f"{PREFIX}{p[0]}_{p[1]}" == env]
    options = {} if horizon is None else {"time_limit": float("inf")}
    built: gym.Env[Any, Any] = gym.wrappers.FlattenObservation(
        compatible(suite.load(*pair, task_kwargs=options), render_mode=render_mode)
    )
    flat = gym.spaces.Box(-np.inf, np.inf, built.observation_space.shape, np.float32)
    built = gym.wrappers.TransformObservation(built, lambda obs: obs.astype(np.float32), flat)
    return built if horizon is None else gym.wrappers.TimeLimit(built, horizon)
