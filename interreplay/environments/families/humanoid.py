"""Humanoids that walk in a direction."""

from typing import Any

import numpy as np

from interreplay.environments.families.bodies import (
    Array,
    Body,
    Motion,
    Rules,
    energy,
    heading,
    without,
)
from interreplay.environments.families.task import Parameters

BODY = Body(
    "humanoid.xml",
    frame_skip=5,
    noise=0.01,
    camera={"trackbodyid": 1, "distance": 4.0, "lookat": np.array((0.0, 0.0, 2.0))},
)


def observe(data: Any) -> Array:
    """`qpos[2:]` (22), `qvel` (23), `cinert` (140), `cvel` (84), `qfrc_actuator` (23), `cfrc_ext`
    (84): 376 numbers, as Gym's Humanoid of then.
    """
    rest = (data.cinert, data.cvel, data.qfrc_actuator, data.cfrc_ext)
    return np.concatenate([without(2, data), *(np.ravel(array) for array in rest)])


def centre_of_mass(model: Any, data: Any) -> Array:
    """Over the ground, `[2]`."""
    masses = model.body_mass
    return (masses @ data.xipos[:, :2]) / masses.sum()


def fallen(data: Any) -> bool:
    """The torso's height is outside [1, 2]."""
    return not 1.0 <= data.qpos[2] <= 2.0


def in_direction(task: Parameters) -> Rules:
    """.25 direction . (shift of the centre of mass) / timestep - .1 ctrl^2 - contacts + 5.

    The old environment divides the shift of a whole env step by the simulator's timestep, so the
    speed counts `frame_skip` (5) times .25. Contacts cost .5e-6 (contact forces)^2, at most 10.
    """
    wanted = heading(task["angle"])

    def terms(motion: Motion) -> dict[str, float]:
        return {
            "reward_forward": 0.25 * BODY.frame_skip * float(motion.velocity @ wanted),
            "reward_ctrl": -0.1 * energy(motion.data.ctrl),
            "reward_contact": -min(0.5e-6 * energy(motion.data.cfrc_ext), 10.0),
            "reward_survive": 5.0,
        }

    return Rules(BODY, observe, centre_of_mass, terms, fallen)
