"""Trainers as RLlib algorithms: a config, a module and a learner each, one door for all."""

from typing import Any

TRAINERS = ("SAC", "TD3", "DDPG")

__all__ = ["TRAINERS", "config_class"]


def config_class(trainer: str) -> Any:
    """The config class of a trainer named in `TRAINERS`; imports ray and torch on the way."""
    if trainer == "SAC":
        from interreplay.algorithms.sac import SACConfig

        return SACConfig
    if trainer == "TD3":
        from interreplay.algorithms.td3 import TD3Config

        return TD3Config
    if trainer == "DDPG":
        from interreplay.algorithms.ddpg import DDPGConfig

        return DDPGConfig
    raise ValueError(f"unknown trainer {trainer!r}; choose one of {', '.join(TRAINERS)}")
