"""Walkers and hoppers whose masses, inertias, frictions and dampings differ from task to task.

After rand_param_envs (Lee 2018): each element of an array is multiplied by b^U(-3, 3). A task holds
the multipliers, so it does not depend on the model's own values.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from interreplay.environments.families.bodies import (
    Array,
    Body,
    Motion,
    Rules,
    along_x,
    energy,
    without,
)
from interreplay.environments.families.task import Parameters

BASES = {"body_mass": 1.5, "body_inertia": 1.5, "dof_damping": 1.3, "geom_friction": 1.5}
LATEST = ("body_mass", "geom_friction")
_LIMIT = 3.0
# Shapes of those arrays in Gymnasium's models, the world and the floor included.
SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "walker": {
        "body_mass": (8,),
        "body_inertia": (8, 3),
        "dof_damping": (9,),
        "geom_friction": (8, 3),
    },
    "hopper": {
        "body_mass": (5,),
        "body_inertia": (5, 3),
        "dof_damping": (6,),
        "geom_friction": (5, 3),
    },
}


def _body(xml: str, distance: float) -> Body:
    camera = {"trackbodyid": 2, "distance": distance, "lookat": np.array((0.0, 0.0, 1.15))}
    return Body(xml, frame_skip=4, noise=0.005, timestep=0.004, camera=camera)


WALKER = _body("walker2d_v5.xml", 4.0)
HOPPER = _body("hopper.xml", 3.0)


def multipliers(
    body: str, names: tuple[str, ...] = tuple(BASES)
) -> Callable[[int, np.random.Generator], list[Parameters]]:
    """The `TaskFamily.draw` of a body: `{array: multipliers, nested as the array}`."""
    shapes = {name: SHAPES[body][name] for name in names}

    def draw(count: int, rng: np.random.Generator) -> list[Parameters]:
        return [
            {
                name: (BASES[name] ** rng.uniform(-_LIMIT, _LIMIT, shape)).tolist()
                for name, shape in shapes.items()
            }
            for _ in range(count)
        ]

    return draw


def observe(data: Any) -> Array:
    """`qpos[1:]`, then `qvel` within ±10: 17 numbers (walker) or 11 (hopper)."""
    return np.concatenate([data.qpos[1:], np.clip(data.qvel, -10, 10)])


def observe_all(data: Any) -> Array:
    """`qpos` and `qvel`: 18 numbers (walker) or 12 (hopper)."""
    return without(0, data)


def walker_fallen(data: Any) -> bool:
    """The height is outside (.8, 2), or the torso leans by a radian or more."""
    return not (0.8 < data.qpos[1] < 2.0 and -1.0 < data.qpos[2] < 1.0)


def walker_low(data: Any) -> bool:
    """`latest`: the height is .5 or less."""
    return not data.qpos[1] > 0.5


def hopper_fallen(data: Any) -> bool:
    """The height is .7 or less, it leans by .2 or more, or an element of the state reaches 100.

    The state is without its first two elements (place and height), as in Gymnasium.
    """
    rest = np.concatenate([data.qpos[2:], data.qvel])
    upright = data.qpos[1] > 0.7 and abs(data.qpos[2]) < 0.2
    return not (upright and bool((np.abs(rest) < 100).all()))


def _forward(bonus: float) -> Callable[[Motion], dict[str, float]]:
    def terms(motion: Motion) -> dict[str, float]:
        return {
            "reward_forward": float(motion.velocity[0]),
            "reward_ctrl": -1e-3 * energy(motion.action),
            "reward_survive": bonus,
        }

    return terms


def _changes(task: Parameters) -> dict[str, Array]:
    return {name: np.array(values) for name, values in task.items()}


def walker(task: Parameters) -> Rules:
    """dx/dt + 1 - 1e-3 a^2 until it falls."""
    return Rules(WALKER, observe, along_x, _forward(1.0), walker_fallen, _changes(task))


def hopper(task: Parameters) -> Rules:
    """dx/dt + 1 - 1e-3 a^2 until it falls."""
    return Rules(HOPPER, observe, along_x, _forward(1.0), hopper_fallen, _changes(task))


def walker_latest(task: Parameters) -> Rules:
    """The same reward; ends only near the ground."""
    return Rules(WALKER, observe_all, along_x, _forward(1.0), walker_low, _changes(task))


def hopper_latest(task: Parameters) -> Rules:
    """dx/dt - 1e-3 a^2, without a bonus; never terminates."""
    return Rules(HOPPER, observe_all, along_x, _forward(0.0), changes=_changes(task))
