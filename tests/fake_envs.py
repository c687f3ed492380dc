"""Small environments with known answers; importing this module registers them."""

import os
import time
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.classic_control import PendulumEnv

_BOX = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
_ACTION = gym.spaces.Box(-2.0, 4.0, (1,), np.float32)  # off-centre: policy space is not env space


class ChainEnv(gym.Env[Any, Any]):
    """obs = [episode code, time]. Lengths vary; every third episode terminates, others run on.

    The episode code is unique per copy, so a row that joined two episodes would show it.
    """

    def __init__(self, observation_space: Any = _BOX, action_space: Any = _ACTION) -> None:
        self.observation_space = observation_space
        self.action_space = action_space
        self.episode = 0
        self.copy = 0
        self.actions: list[float] = []

    def _obs(self) -> np.ndarray:
        return np.array([self.copy * 1000 + self.episode, self.time], np.float64)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.copy = int(self.np_random.integers(1, 1000))
        self.episode += 1
        self.time = 0
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        self.actions.append(float(action[0]))
        terminated = self.episode % 3 == 0 and self.time == 5
        return self._obs(), float(self.time), terminated, False, {}


class NanEnv(ChainEnv):
    """Returns NaN in its second observation element at the third step."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = super().step(action)
        if self.time == 3:
            obs[1] = np.nan
        return obs, reward, terminated, truncated, info


class BrokenOnceEnv(ChainEnv):
    """Its simulator dies once, at the fourth step ever taken."""

    broke = False
    total = 0

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        BrokenOnceEnv.total += 1
        if BrokenOnceEnv.total == 4 and not BrokenOnceEnv.broke:
            BrokenOnceEnv.broke = True
            raise RuntimeError("the simulator died")
        return super().step(action)


class DyingEnv(ChainEnv):
    """Its simulator dies at the 25th step of every instance."""

    total = 0

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.total += 1
        if self.total == 25:
            raise RuntimeError("the simulator died")
        return super().step(action)


class EndlessEnv(ChainEnv):
    """Never ends by itself, and is registered without a time limit."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, _, truncated, info = super().step(action)
        self.actions.clear()
        return obs, reward, False, truncated, info


class PickyEnv(ChainEnv):
    """Insists on actions that its action space contains."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), (action, action.dtype)
        return super().step(action)


def short() -> gym.Env[Any, Any]:
    """An environment that no id stands for."""
    return gym.wrappers.TimeLimit(ChainEnv(), 7)


def _with(**spaces: Any) -> Any:
    return lambda: ChainEnv(**spaces)


gym.register("Chain-v0", ChainEnv, max_episode_steps=7)
gym.register("Picky-v0", PickyEnv, max_episode_steps=7)
gym.register("Nan-v0", NanEnv, max_episode_steps=7)
gym.register("BrokenOnce-v0", BrokenOnceEnv, max_episode_steps=7)
gym.register("Dying-v0", DyingEnv, max_episode_steps=7)
gym.register("DiscreteActions-v0", _with(action_space=gym.spaces.Discrete(3)))
gym.register("Unbounded-v0", _with(action_space=gym.spaces.Box(-np.inf, np.inf, (1,))))
gym.register("MatrixActions-v0", _with(action_space=gym.spaces.Box(-1, 1, (2, 2))))
gym.register("IntegerActions-v0", _with(action_space=gym.spaces.Box(0, 3, (1,), np.int32)))
gym.register(
    "WrongShape-v0",
    _with(observation_space=gym.spaces.Box(-1, 1, (3,), np.float64)),
    disable_env_checker=True,
    order_enforce=False,
)
gym.register("Endless-v0", EndlessEnv)
gym.register("Image-v0", _with(observation_space=gym.spaces.Box(0, 255, (8, 8, 3), np.uint8)))
gym.register("DictObs-v0", _with(observation_space=gym.spaces.Dict({"a": _BOX})))


class Slow(PendulumEnv):
    """Pendulum that takes `INTERREPLAY_SLOW_S` seconds a step, and is as it is without."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        time.sleep(float(os.environ.get("INTERREPLAY_SLOW_S", 0)))
        return super().step(action)


gym.register("Slow-v0", Slow, max_episode_steps=200)
