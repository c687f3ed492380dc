"""A point that walks in the plane towards a goal."""

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from interreplay.environments.families import drawing
from interreplay.environments.families.rewards import Rewards
from interreplay.environments.families.task import Parameters
from interreplay.errors import UsageError

STRIDE = 0.1  # the furthest that a step goes, along each axis
Vector = NDArray[np.float64]


class PointEnv(gym.Env[Vector, Any]):
    """Observation: the position, 2 numbers. Action: a step, 2 numbers within ±.1 (clipped).

    Reward: minus the Euclidean distance to the goal after the step. Nothing terminates.

    Args:
        goal: where to.
        rewards: which reward `step` returns.
        wind: added to the position in every step.
        scattered: start uniformly in [-1, 1]^2 in place of the origin.
        render_mode: None or `rgb_array`.

    Raises:
        UsageError: another render mode.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(
        self,
        goal: Any,
        rewards: Rewards,
        *,
        wind: Any = (0.0, 0.0),
        scattered: bool = False,
        render_mode: str | None = None,
    ) -> None:
        if render_mode not in (None, "rgb_array"):
            raise UsageError(f"point robots know no render mode {render_mode!r}; use rgb_array")
        self.goal = np.asarray(goal, np.float64)
        self.wind = np.asarray(wind, np.float64)
        self.rewards = rewards
        self.scattered = scattered
        self.render_mode = render_mode
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = gym.spaces.Box(-STRIDE, STRIDE, (2,), np.float32)
        self.position = np.zeros(2)
        self.path = [self.position]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Vector, dict[str, Any]]:
        """Back to the start."""
        super().reset(seed=seed)
        self.position = self.np_random.uniform(-1, 1, 2) if self.scattered else np.zeros(2)
        self.path = [self.position]
        return self.position.copy(), {}

    def step(self, action: Any) -> tuple[Vector, float, bool, bool, dict[str, Any]]:
        """One stride, and the wind's."""
        stride = np.clip(np.asarray(action, np.float64), -STRIDE, STRIDE)
        self.position = self.position + stride + self.wind
        self.path.append(self.position)
        distance = float(np.linalg.norm(self.position - self.goal))
        reward, info = self.rewards(-distance)
        return self.position.copy(), reward, False, False, {"distance": distance, **info}

    def render(self) -> NDArray[np.uint8] | None:  # type: ignore[override]
        """`[320, 320, 3]` uint8: goal, how far its sparse reward reaches, path, robot and wind."""
        if self.render_mode is None:
            return None
        furthest = np.abs([*self.path, self.goal]).max()
        canvas = drawing.Canvas(max(1.4, 1.1 * float(furthest)))
        canvas.ring(self.goal, abs(self.rewards.threshold), drawing.GOAL)
        canvas.disc(self.goal, 0.03, drawing.GOAL)
        for here, there in zip(self.path, self.path[1:], strict=False):
            canvas.line(here, there, drawing.PATH)
        if self.wind.any():
            canvas.line(self.position, self.position + 5 * self.wind, drawing.WIND)
        canvas.disc(self.position, 0.045, drawing.ROBOT)
        return canvas.pixels


def uniform_goals(count: int, rng: np.random.Generator) -> list[Parameters]:
    """Goals uniform in [-1, 1]^2."""
    return [{"goal": rng.uniform(-1, 1, 2).tolist()} for _ in range(count)]


def half_circle_goals(count: int, rng: np.random.Generator) -> list[Parameters]:
    """Goals on the upper unit half circle, equally spaced from angle 0 to pi. Nothing is drawn."""
    del rng
    return [{"goal": [np.cos(a).item(), np.sin(a).item()]} for a in np.linspace(0, np.pi, count)]


def winds(count: int, rng: np.random.Generator) -> list[Parameters]:
    """Winds uniform in [-.05, .05]^2, per step."""
    return [{"wind": rng.uniform(-0.05, 0.05, 2).tolist()} for _ in range(count)]


def scattered(task: Parameters, rewards: Rewards, render_mode: str | None) -> PointEnv:
    """point-robot: a goal, and a start anywhere."""
    return PointEnv(task["goal"], rewards, scattered=True, render_mode=render_mode)


def from_origin(task: Parameters, rewards: Rewards, render_mode: str | None) -> PointEnv:
    """sparse-point-robot: a goal, and a start at the origin."""
    return PointEnv(task["goal"], rewards, render_mode=render_mode)


def windy(task: Parameters, rewards: Rewards, render_mode: str | None) -> PointEnv:
    """point-robot-wind: the goal (1, 0), a start at the origin, and a wind."""
    return PointEnv((1.0, 0.0), rewards, wind=task["wind"], render_mode=render_mode)
