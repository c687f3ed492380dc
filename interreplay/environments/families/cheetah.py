"""Half cheetahs that run at a speed, or in a direction."""

from typing import Any

import numpy as np

from interreplay.environments.families.bodies import Array, Body, Motion, Rules, along_x, energy
from interreplay.environments.families.task import Parameters

BODY = Body("half_cheetah.xml", frame_skip=5, noise=0.1, normal_velocities=True)
_CONTROL = 0.05


def velocities(count: int, rng: np.random.Generator) -> list[Parameters]:
    """Speeds uniform in [0, 3), in m/s."""
    return [{"velocity": rng.uniform(0, 3)} for _ in range(count)]


def directions(count: int, rng: np.random.Generator) -> list[Parameters]:
    """Forward and backward in turn."""
    del rng
    return [{"direction": 1.0 if k % 2 == 0 else -1.0} for k in range(count)]


def both_directions(count: int, rng: np.random.Generator) -> list[Parameters]:
    """Forward and backward: two tasks, however many are asked for."""
    return directions(min(count, 2), rng)


def observe(data: Any) -> Array:
    """`qpos[1:]` (8), `qvel` (9) and the torso's place in space (3)."""
    return np.concatenate([data.qpos[1:], data.qvel, data.body("torso").xpos])


def at_velocity(task: Parameters) -> Rules:
    """Minus the distance to the wanted speed, less .05 a^2."""

    def terms(motion: Motion) -> dict[str, float]:
        error = abs(float(motion.velocity[0]) - task["velocity"])
        return {"reward_forward": -error, "reward_ctrl": -_CONTROL * energy(motion.action)}

    return Rules(BODY, observe, along_x, terms)


def in_direction(task: Parameters) -> Rules:
    """The speed in the wanted direction, less .05 a^2."""

    def terms(motion: Motion) -> dict[str, float]:
        forward = task["direction"] * float(motion.velocity[0])
        return {"reward_forward": forward, "reward_ctrl": -_CONTROL * energy(motion.action)}

    return Rules(BODY, observe, along_x, terms)
