"""Environment ids: which exist, and what the old ones are called now."""

import difflib
import importlib
import re

import gymnasium as gym

from interreplay.errors import UsageError

# MuJoCo's environments kept their names when gym became gymnasium; -v2 and -v3 are gone.
MUJOCO = (
    "Ant",
    "HalfCheetah",
    "Hopper",
    "Humanoid",
    "HumanoidStandup",
    "InvertedDoublePendulum",
    "InvertedPendulum",
    "Pusher",
    "Reacher",
    "Swimmer",
    "Walker2d",
)
_RENAMED = {
    "Pendulum-v0": "Pendulum-v1",
    "LunarLanderContinuous-v2": "LunarLanderContinuous-v3",
}


def resolve_id(env: str) -> tuple[str, str | None]:
    """The id to build for `env`, and the warning to show when that is not `env` itself.

    Raises:
        UsageError: no environment of that name; the sentence suggests the closest ones.
    """
    if env in _RENAMED:
        new = _RENAMED[env]
        return new, f"{env} is no longer registered: running its successor {new}"
    old = re.fullmatch(r"(\w+)-v[23]", env)
    if old and old[1] in MUJOCO:
        new = f"{old[1]}-v5"
        return new, (
            f"{env} needs mujoco-py, which is no longer installable: running its successor {new}, "
            "whose observations and rewards differ, so returns don't compare with the old ones"
        )
    module, colon, name = env.rpartition(":")
    if colon:
        try:
            importlib.import_module(module)
        except Exception as error:  # somebody else's module may fail in any way
            raise UsageError(
                f"the module {module!r} of environment {env!r} can't be imported: "
                f"{type(error).__name__}: {error}"
            ) from error
    try:
        gym.spec(name)
    except gym.error.Error as error:
        known = sorted(gym.registry)
        close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
        hint = (
            f"did you mean {' or '.join(close)}?" if close else "see `gymnasium.pprint_registry()`"
        )
        raise UsageError(f"unknown environment {env!r}: {hint}") from error
    return env, None
