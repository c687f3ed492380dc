"""The whole state of an environment in the middle of an episode, as a checkpoint carries it.

Every layer of wrappers gives its attributes, MuJoCo its simulator's data (positions, velocities,
warm start, contacts and what was computed from them, so that a reward which reads the last step's
forces is the same), every generator its state.
"""

import pickle
import types
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import mujoco

# Built anew with the environment, the same for the same settings.
_FIXED = {
    *("env", "spec", "_cached_spec", "observation_space", "action_space", "_observation_space"),
    *("_action_space", "metadata", "_metadata", "render_mode", "model", "mujoco_renderer"),
    "_saved_kwargs",
}
_CODE = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, type, types.ModuleType)


class CannotSaveError(Exception):
    """The environment holds something that can't be written down; says what."""


def get_state(env: gym.Env[Any, Any]) -> list[bytes]:
    """The state of each layer, outermost first.

    Raises:
        CannotSaveError: an attribute can't be pickled (a simulator outside Python, a window).
    """
    return [_of_layer(layer) for layer in _layers(env)]


def set_state(env: gym.Env[Any, Any], state: list[bytes]) -> None:
    """Put an environment that was built alike where `get_state` left the other one."""
    for layer, saved in zip(_layers(env), state, strict=True):
        _into_layer(layer, pickle.loads(saved))


def _layers(env: Any) -> Iterator[Any]:
    while isinstance(env, gym.Wrapper):
        yield env
        env = env.env
    yield env


def _of_layer(layer: Any) -> bytes:
    attributes: dict[str, Any] = {}
    simulator = _dm_control(layer)
    for name, value in vars(layer).items():
        if name in _FIXED or isinstance(value, _CODE) or value is simulator is not None:
            continue
        if isinstance(value, gym.Env | mujoco.MjModel):
            raise CannotSaveError(f"{type(layer).__name__}.{name} is a simulator of its own")
        attributes[name] = value
    content: dict[str, Any] = {"attributes": attributes}
    if simulator is not None:
        content["dm_control"] = _of_dm_control(simulator)
    try:
        return pickle.dumps(content)
    except Exception as error:  # pickle raises whatever the object's own code raises
        raise CannotSaveError(f"{type(layer).__name__} can't be written down: {error}") from error


def _into_layer(layer: Any, content: dict[str, Any]) -> None:
    for name, value in content["attributes"].items():
        if isinstance(value, mujoco.MjData):
            # In place: renderers hold on to the data they were given.
            mujoco.mj_copyData(vars(layer)[name], layer.model, value)
        else:
            setattr(layer, name, value)
    if "dm_control" in content:
        _into_dm_control(_dm_control(layer), content["dm_control"])


def _dm_control(layer: Any) -> Any:
    """The dm_control environment inside shimmy's wrapper; None elsewhere."""
    inner = vars(layer).get("_env")
    return inner if hasattr(inner, "physics") and hasattr(inner, "task") else None


# What a control.Environment changes from step to step, besides its physics and its task.
_OF_EPISODE = ("_step_count", "_reset_next_step")


def _of_dm_control(simulator: Any) -> dict[str, Any]:
    return {
        "data": simulator.physics.data.ptr,
        "task": {k: v for k, v in vars(simulator.task).items() if not isinstance(v, _CODE)},
        "episode": {name: getattr(simulator, name) for name in _OF_EPISODE},
    }


def _into_dm_control(simulator: Any, content: dict[str, Any]) -> None:
    physics = simulator.physics
    mujoco.mj_copyData(physics.data.ptr, physics.model.ptr, content["data"])
    for name, value in content["task"].items():
        setattr(simulator.task, name, value)
    for name, value in content["episode"].items():
        setattr(simulator, name, value)
