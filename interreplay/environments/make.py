"""Building environments, alone or several side by side, and refusing what can't be learned."""

import os
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

from interreplay.environments import dmc
from interreplay.environments.contract import guard
from interreplay.environments.families import ids as families
from interreplay.environments.ids import member, resolve_id
from interreplay.errors import UsageError

try:
    from interreplay.environments.mujoco_log import take_over_mujoco_warnings
except (ImportError, AttributeError) as error:  # a GL backend that is named but not installed
    raise UsageError(
        f"mujoco can't be imported with MUJOCO_GL={os.environ.get('MUJOCO_GL', '')!r}: "
        f"{error}; unset MUJOCO_GL (training needs no pictures) or install that backend"
    ) from error


def check_spaces(env: gym.Env[Any, Any], name: str) -> None:
    """Refuse what the trainers can't take: they need flat observations and a bounded action box.

    Raises:
        UsageError: the space at fault and what to do about it.
    """
    obs, action = env.observation_space, env.action_space
    if not isinstance(obs, gym.spaces.Box) or len(obs.shape) != 1:
        kind = f"Box{obs.shape}" if isinstance(obs, gym.spaces.Box) else type(obs).__name__
        raise UsageError(
            f"{name} has {kind} observations but the trainers take flat vectors; wrap it with "
            "gymnasium.wrappers.FlattenObservation (images need an encoder, which is not built in)"
        )
    if not isinstance(action, gym.spaces.Box):
        raise UsageError(
            f"{name} has {type(action).__name__} actions but SAC, TD3 and DDPG are for continuous "
            "control; choose an environment with a Box action space, such as InvertedPendulum-v5"
        )
    if not np.issubdtype(action.dtype, np.floating):
        raise UsageError(
            f"{name} has {action.dtype} actions but the policy's are real numbers; wrap it so that "
            "its action box is of float32"
        )
    if len(action.shape) != 1:
        raise UsageError(
            f"{name} has actions of shape {action.shape} but the trainers take flat vectors; "
            "wrap it so that its actions have one axis"
        )
    if not (np.isfinite(action.low).all() and np.isfinite(action.high).all()):
        raise UsageError(
            f"{name} has an unbounded action box but a squashed policy needs bounds; wrap it with "
            "gymnasium.wrappers.RescaleAction or give its action space finite low and high"
        )


def make_env(env: str, *, horizon: int | None = None, render_mode: str | None = None) -> Any:
    """Build one environment by id (old ids included) and check that our trainers can take it.

    Its first step is checked when it is made: see `contract.guard`.

    Args:
        env: a Gymnasium id (`module:id` imports the module first), `dmc/<domain>_<task>`,
            `focal/<family>/<task>`, or `module:Class`, a class or function that makes an
            environment.
        horizon: overrides the id's own time limit, in env steps.
        render_mode: as in Gymnasium.

    Raises:
        UsageError: unknown id, a missing dependency, or spaces that the trainers can't take.
    """
    built = build_env(env, horizon=horizon, render_mode=render_mode)
    check_spaces(built, env)
    guard(built, env)
    return built


def build_env(env: str, *, horizon: int | None = None, render_mode: str | None = None) -> Any:
    """`make_env` for environments of any spaces: discrete actions, images, dicts.

    Raises:
        UsageError: unknown id, or a missing dependency.
    """
    name, _ = resolve_id(env)
    of_suite = name.startswith(dmc.PREFIX)
    if of_suite:
        dmc.load()  # first, as it brings a handler of warnings along
    take_over_mujoco_warnings()
    if of_suite:
        return dmc.build(name, horizon=horizon, render_mode=render_mode)
    if name.startswith(families.PREFIX):
        return families.parse(name).build(horizon=horizon, render_mode=render_mode)
    maker = member(name)
    if maker is not None:
        return _call(maker, env, horizon, render_mode)
    return _registered(name, env, horizon, render_mode)


def _registered(name: str, env: str, horizon: int | None, render_mode: str | None) -> Any:
    options: dict[str, Any] = {} if horizon is None else {"max_episode_steps": horizon}
    if render_mode is not None:
        options["render_mode"] = render_mode
    try:
        with warnings.catch_warnings():
            # resolve_id has said what there is to say about versions.
            warnings.filterwarnings("ignore", message=".*is out of date.*")
            return gym.make(name, **options)
    except (gym.error.Error, ImportError) as error:
        reason = str(error).replace("\n", " ")
        if "Box2D" in reason or "box2d" in reason:
            reason = (
                "it needs box2d and pygame: pip install 'interreplay[box2d]' (pip install -e "
                "'.[box2d]' in a checkout)"
            )
        raise UsageError(f"{env} can't be built: {reason}") from error


def _call(maker: Any, env: str, horizon: int | None, render_mode: str | None) -> Any:
    """An environment from somebody's class or function, which may fail in any way."""
    if not callable(maker):
        raise UsageError(f"{env} names a {type(maker).__name__}, not a class that makes one")
    try:
        built = maker() if render_mode is None else maker(render_mode=render_mode)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".replace("\n", " ")
        raise UsageError(
            f"{env} can't be built without arguments ({reason}); name a function that makes it"
        ) from error
    if not isinstance(built, gym.Env):
        raise UsageError(f"{env} makes a {type(built).__name__}, not a gymnasium.Env")
    return built if horizon is None else gym.wrappers.TimeLimit(built, horizon)


def make_vector_env(
    env: str, count: int, *, horizon: int | None = None
) -> gym.vector.VectorEnv[Any, Any, Any]:
    """`count` copies in one process. A finished copy resets itself within the same step.

    The last observation of an episode is then in `infos["final_obs"]`, so no call is spent on a
    reset and none of the returned transitions is a dummy.
    """

    def build() -> Any:
        return make_env(env, horizon=horizon)

    builders: list[Callable[[], Any]] = [build] * count
    return gym.vector.SyncVectorEnv(
        builders, copy=False, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP
    )
