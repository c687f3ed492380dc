"""What an environment returns, held against what it promises, before numpy trips over it."""

import functools
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

from interreplay.errors import UsageError

_STEP = "(observation, reward, terminated, truncated, info)"


def guard(env: gym.Env[Any, Any], name: str) -> None:
    """Have every reset and the first step of `env` and of what it wraps checked, then let go.

    Each layer is held against its own spaces, so a fault is found where it is made. The checks
    stand in the instances' `step` and `reset`; that of `step` takes itself away after one call, and
    later steps cost what they cost without it. Rewards that come as arrays of one number are taken:
    such a layer goes on through a function that makes floats of them.

    The calls raise UsageError for a reset or step that is no tuple of Gymnasium's form, an
    observation of another shape than its Box's or not of numbers, a reward that is not one number,
    flags that are not bools, an info that is no dict, and an action space that changes.
    """
    layer = env
    while True:
        _guard_layer(layer, name)
        if not isinstance(layer, gym.Wrapper):
            return
        layer = layer.env


def check_first_step(env: gym.Env[Any, Any], name: str) -> None:
    """Reset and step a guarded environment once, to see what it returns before a run begins.

    Raises:
        UsageError: see `guard`.
    """
    env.reset(seed=0)
    env.action_space.seed(0)
    env.step(env.action_space.sample())


def _guard_layer(layer: Any, name: str) -> None:
    reset, step, promised = layer.reset, layer.step, layer.action_space

    def unchanged() -> None:
        if layer.action_space is not promised and layer.action_space != promised:
            raise UsageError(
                f"{name} changed its action space from {promised} to {layer.action_space}; a "
                "policy has one, so choose bounds that hold throughout"
            )

    @functools.wraps(reset)  # Gymnasium looks whether the signature has a seed
    def checked_reset(**options: Any) -> Any:
        returned = _called(reset, name, options)
        _check_reset(returned, layer.observation_space, name)
        unchanged()
        return returned

    @functools.wraps(step)
    def first_step(action: Any) -> Any:
        returned = step(action)
        _check_step(returned, layer.observation_space, name)
        unchanged()
        if np.ndim(returned[1]) == 0:
            del layer.step
            return returned
        layer.step = lambda action: _with_float(step(action))
        return _with_float(returned)

    layer.reset, layer.step = checked_reset, first_step


def _with_float(returned: Any) -> Any:
    obs, reward, *rest = returned
    return obs, np.asarray(reward).item(), *rest


def _called(reset: Callable[..., Any], name: str, options: dict[str, Any]) -> Any:
    try:
        return reset(**options)
    except TypeError as error:
        if "reset() got an unexpected keyword argument" not in str(error):
            raise
        raise UsageError(
            f"{name} can't be seeded ({error}); give its reset the arguments seed and options"
        ) from error


def _check_reset(returned: Any, space: gym.Space[Any], name: str) -> None:
    if not isinstance(returned, tuple) or len(returned) != 2:
        raise UsageError(
            f"{name} returned {_kind(returned)} from reset, not the pair (observation, info); "
            "mend its reset (shimmy converts environments of the old gym)"
        )
    _check_observation(returned[0], space, name)
    _check_info(returned[1], name, "reset")


def _check_step(returned: Any, space: gym.Space[Any], name: str) -> None:
    if not isinstance(returned, tuple) or len(returned) != 5:
        raise UsageError(
            f"{name} returned {_kind(returned)} from step, not {_STEP}; mend its step (shimmy "
            "converts environments of the old gym)"
        )
    obs, reward, terminated, truncated, info = returned
    _check_observation(obs, space, name)
    numbers = _numbers(reward)
    if numbers is None or numbers.size != 1:
        raise UsageError(
            f"{name} returned {_kind(reward)} as its reward, which must be one number; mend its "
            "step"
        )
    for flag, value in (("terminated", terminated), ("truncated", truncated)):
        if not isinstance(value, bool | np.bool_):
            raise UsageError(
                f"{name} returned {_kind(value)} as {flag}, which must be True or False; mend its "
                "step"
            )
    _check_info(info, name, "step")


def _check_observation(obs: Any, space: gym.Space[Any], name: str) -> None:
    """Of Boxes alone: what wraps other spaces makes a Box of them, and is looked at in its turn."""
    if not isinstance(space, gym.spaces.Box):
        return
    numbers = _numbers(obs)
    if numbers is None:
        raise UsageError(
            f"{name} returned {_kind(obs)} as its observation, which must be an array of numbers; "
            "mend its reset and step"
        )
    if numbers.shape != space.shape:
        raise UsageError(
            f"{name} returned an observation of shape {numbers.shape} but its space has shape "
            f"{space.shape}; mend the environment's observation_space"
        )


def _check_info(info: Any, name: str, method: str) -> None:
    if not isinstance(info, dict):
        raise UsageError(
            f"{name} returned {_kind(info)} as the info of its {method}, which must be a dict; "
            "return {} where there is nothing to say"
        )


def _numbers(value: Any) -> Any:
    """The array that `value` is, None when it is no array of numbers."""
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError):  # ragged lists, tensors on a GPU
        return None
    return array if array.dtype.kind in "biuf" else None


def _kind(value: Any) -> str:
    """What came, in a few words: `None`, `3`, `a tuple of 4`, `an array of shape (2,)`."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        return f"an array of shape {value.shape}"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    if value is None or isinstance(value, bool | int | float | np.number):
        return str(value)
    return f"a value of type {type(value).__name__}"
