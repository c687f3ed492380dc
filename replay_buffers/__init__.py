"""Experience replay for continuous control: storage, samplers, partners, augmentations.

    from replay_buffers import CATALOG, ReplayBuffer
    buffer = ReplayBuffer.from_catalog("nmer", obs_dim=17, action_dim=6, capacity=1_000_000, seed=0)

Importing this package costs nothing: torch is only loaded with the parts that need it, so that a
command line (or a cluster's login node) can read the catalog alone.
"""

from typing import TYPE_CHECKING, Any

from replay_buffers.catalog import CATALOG, Recipe

if TYPE_CHECKING:
    from replay_buffers.buffer import ReplayBuffer

__all__ = ["CATALOG", "Recipe", "ReplayBuffer"]


def __getattr__(name: str) -> Any:
    if name == "ReplayBuffer":
        from replay_buffers.buffer import ReplayBuffer

        return ReplayBuffer
    raise AttributeError(f"module 'replay_buffers' has no attribute {name!r}")
