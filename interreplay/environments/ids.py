"""Environment ids: which exist, and what the old ones are called now."""

import difflib
import importlib
import os
import re
import sys
from types import ModuleType

import gymnasium as gym

from interreplay.environments import dmc
from interreplay.environments.families import ids as families
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
    # The other -v4 ids still run; Pusher-v4's model needs a mujoco older than 3.
    if (old and old[1] in MUJOCO) or env == "Pusher-v4":
        new = re.sub(r"v\d$", "v5", env)
        needs = "an older mujoco" if env == "Pusher-v4" else "mujoco-py, no longer installable"
        return new, (
            f"{env} needs {needs}: running its successor {new}, whose observations and rewards "
            "differ, so returns don't compare with the old ones"
        )
    of_suite = dmc.canonical(env)
    if of_suite is not None:
        if of_suite.removeprefix(dmc.PREFIX) not in dmc.TASKS:
            known = dmc.known()
            if of_suite not in known:
                raise UsageError(f"unknown environment {env!r}: {_hint(of_suite, known)}")
        return of_suite, None
    if env.startswith(families.PREFIX):
        families.parse(env)
        return env, None
    module, colon, name = env.rpartition(":")
    members = vars(_imported(module, env)) if colon else {}
    if name in members:
        return env, None
    try:
        gym.spec(name)
    except gym.error.Error as error:
        classes = [n for n, member in members.items() if isinstance(member, type)]
        hint = _hint(name, sorted([*gym.registry, *classes]))
        raise UsageError(f"unknown environment {env!r}: {hint}") from error
    return env, None


def _hint(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(close)}?" if close else "see `gymnasium.pprint_registry()`"


def _imported(module: str, env: str) -> ModuleType:
    """Import the module of `module:name`, from the current directory as well."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        return importlib.import_module(module)
    except Exception as error:  # somebody else's module may fail in any way
        raise UsageError(
            f"the module {module!r} of environment {env!r} can't be imported: "
            f"{type(error).__name__}: {error}"
        ) from error


def in_gymnasium(env: str) -> bool:
    """Whether `gymnasium.make` builds this id, or only this package does."""
    ours = dmc.canonical(env) is not None or env.startswith(families.PREFIX)
    return not ours and member(env) is None


def member(env: str) -> object | None:
    """What `module:name` names in its module; None for every other kind of id."""
    module, colon, name = env.rpartition(":")
    return vars(_imported(module, env)).get(name) if colon else None
