"""Experience replay and offline meta-RL on RLlib."""

import warnings

__version__ = "0.1.0"

# dm_control looks for a display when it is imported, and RLlib imports it where it is installed.
warnings.filterwarnings("ignore", message=".*DISPLAY environment variable is missing")
