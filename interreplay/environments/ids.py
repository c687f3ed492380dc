"""Environment ids: which exist, and what the old ones are called now."""

import difflib
import importlib
import re

import gymnasium as gym

from interreplay.errors import UsageError

# MuJoCo's environments kept their names when gym became gymnasium, but lost their -v2 versions.
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


def resolve_id(env: str) -> tuple[str, str | None]:
    """The id to build for `env`, and the warning to show when that is not `env` itself.

    Raises:
        UsageError: no environment of that name; the sentence suggests the closest ones.
    """
    old = re.fullmatch(r"(\w+)-v2", env)
    if old and old[1] in MUJOCO:
        new = f"{old[1]}-v5"
        return new, (
            f"{env} needs mujoco-py, which is no longer installable: running its successor {new}, "
            "whose observations and rewards differ, so returns don't compare with -v2 results"
        )
    module, colon, name = env.rpartition(":")
    try:
        if colon:
            importlib.import_module(module)
        gym.spec(name)
    except ImportError as error:
        raise UsageError(
            f"the module {module!r} of environment {env!r} can't be imported: {error}"
        ) from error
    except gym.error.Error as error:
        known = sorted(gym.registry)
        close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
        hint = (
            f"did you mean {' or '.join(close)}?" if close else "see `gymnasium.pprint_registry()`"
        )
        raise UsageError(f"unknown environment {env!r}: {hint}") from error
    return env, None
