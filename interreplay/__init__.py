"""Experience replay and offline meta-RL on RLlib."""

__version__ = "0.1.0"
