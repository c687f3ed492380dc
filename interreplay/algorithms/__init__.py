"""Trainers as RLlib algorithms: a config, a module and a learner each, one door for all."""

from typing import Any

TRAINERS = ("SAC",)

__all__ = ["TRAINERS", "config_class"]


def config_class(trainer: str) -> Any:
    """The config class of a trainer named in `TRAINERS`; imports ray and torch on the way."""
    if trainer == "SAC":
        from interreplay.algorithms.sac import SACConfig

        return SACConfig
    raise ValueError(f"unknown trainer {trainer!r}; choose one of {', '.join(TRAINERS)}")
