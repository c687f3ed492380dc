"""What a family in MuJoCo is made of: a body, and rules for what it observes and what it pays.

Nothing here needs MuJoCo itself: `model` and `data` are its structures, given by `simulated`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Body:
    """One of Gymnasium's models and how it is run.

    Attributes:
        xml: the file's name among Gymnasium's assets.
        frame_skip: simulator steps in an env step.
        noise: half the width of the uniform noise on the start's positions.
        normal_velocities: at the start, velocities are normal with that size (ant and cheetah)
            in place of uniform.
        timestep: seconds of a simulator step; None for the model's own.
        camera: Gymnasium's camera settings.
    """

    xml: str
    frame_skip: int
    noise: float
    normal_velocities: bool = False
    timestep: float | None = None
    camera: dict[str, Any] = field(default_factory=lambda: {"distance": 4.0})


@dataclass(frozen=True)
class Motion:
    """One env step, as rules see it.

    Attributes:
        velocity: change of `Rules.position` in a second, `[n]`.
        action: `[n_actions]` float64, as given.
        data: the simulator's, after the step.
    """

    velocity: Array
    action: Array
    data: Any


def stays_up(data: Any) -> bool:
    """`Rules.ended` of what never terminates."""
    del data
    return False


@dataclass(frozen=True)
class Rules:
    """A task's observation, reward and end.

    Attributes:
        body: what moves.
        observe: `data` to the observation, `[n]`.
        position: `(model, data)` to what the velocity is measured of, `[n]`.
        terms: an env step to the dense reward's terms by name; the reward is their sum.
        ended: `data` to whether the body has fallen, so that the step terminates.
        changes: factors of the model's arrays by name, each of its array's shape.
    """

    body: Body
    observe: Callable[[Any], Array]
    position: Callable[[Any, Any], Array]
    terms: Callable[[Motion], dict[str, float]]
    ended: Callable[[Any], bool] = stays_up
    changes: Mapping[str, Array] = field(default_factory=dict)


def energy(action: Array) -> float:
    """Sum of squares."""
    return float(np.square(action).sum())


def without(skipped: int, data: Any) -> Array:
    """Positions but for the first `skipped`, then velocities."""
    return np.concatenate([data.qpos[skipped:], data.qvel])


def clipped_contacts(data: Any) -> Array:
    """External forces and torques on every body (the world's first, zeros), within ±1."""
    return np.clip(data.cfrc_ext, -1, 1)


def along_x(model: Any, data: Any) -> Array:
    """`Rules.position` of what runs in a plane."""
    del model
    return data.qpos[:1].copy()


def over_ground(model: Any, data: Any) -> Array:
    """`Rules.position` of what walks about."""
    del model
    return data.qpos[:2].copy()


def heading(angle: float) -> Array:
    """The unit vector in the direction of an angle, in radians from the x axis."""
    return np.array([np.cos(angle), np.sin(angle)])
