"""Ants that walk in a direction, or to a place."""

from typing import Any

import numpy as np

from interreplay.environments.families.bodies import (
    Array,
    Body,
    Motion,
    Rules,
    clipped_contacts,
    energy,
    heading,
    over_ground,
    without,
)
from interreplay.environments.families.task import Parameters

BODY = Body("ant.xml", frame_skip=5, noise=0.1, normal_velocities=True)
_CONTACT = 0.5e-3


def angles(count: int, rng: np.random.Generator) -> list[Parameters]:
    """Directions uniform in [0, 2 pi), in radians from the x axis."""
    return [{"angle": rng.uniform(0, 2 * np.pi)} for _ in range(count)]


def both_directions(count: int, rng: np.random.Generator) -> list[Parameters]:
    """Forward (0) and backward (pi): two tasks, however many are asked for."""
    del rng
    return [{"angle": 0.0}, {"angle": np.pi}][:count]


def goals(count: int, rng: np.random.Generator) -> list[Parameters]:
    """Places uniform over the disc of radius 3: radius 3 sqrt(U), angle uniform."""
    drawn = [(3 * np.sqrt(rng.uniform()), rng.uniform(0, 2 * np.pi)) for _ in range(count)]
    return [{"goal": (radius * heading(angle)).tolist()} for radius, angle in drawn]


def observe(data: Any) -> Array:
    """`qpos[2:]` (13) and `qvel` (14)."""
    return without(2, data)


def observe_place_and_contacts(data: Any) -> Array:
    """`qpos` (15), `qvel` (14) and the clipped contact forces (84), as PEARL's ant-goal."""
    return np.concatenate([without(0, data), clipped_contacts(data).ravel()])


def fallen(data: Any) -> bool:
    """Not finite any more, or the torso's height is outside [.2, 1]."""
    finite = np.isfinite(data.qpos).all() and np.isfinite(data.qvel).all()
    return not (finite and 0.2 <= data.qpos[2] <= 1.0)


def _contact_cost(data: Any) -> float:
    return -_CONTACT * energy(clipped_contacts(data))


def in_direction(task: Parameters) -> Rules:
    """The speed in the wanted direction - .5 a^2 - .5e-3 (contact forces)^2 + 1."""
    wanted = heading(task["angle"])

    def terms(motion: Motion) -> dict[str, float]:
        return {
            "reward_forward": float(motion.velocity @ wanted),
            "reward_ctrl": -0.5 * energy(motion.action),
            "reward_contact": _contact_cost(motion.data),
            "reward_survive": 1.0,
        }

    return Rules(BODY, observe, over_ground, terms, fallen)


def in_direction_latest(task: Parameters) -> Rules:
    """The speed in the wanted direction and nothing else; never terminates."""
    wanted = heading(task["angle"])

    def terms(motion: Motion) -> dict[str, float]:
        return {"reward_forward": float(motion.velocity @ wanted)}

    return Rules(BODY, observe, over_ground, terms)


def to_goal(task: Parameters) -> Rules:
    """Minus the L1 distance to the goal - .1 a^2 - .5e-3 (contact forces)^2."""
    goal = np.array(task["goal"])

    def terms(motion: Motion) -> dict[str, float]:
        return {
            "reward_goal": -float(np.abs(motion.data.qpos[:2] - goal).sum()),
            "reward_ctrl": -0.1 * energy(motion.action),
            "reward_contact": _contact_cost(motion.data),
        }

    return Rules(BODY, observe_place_and_contacts, over_ground, terms)
