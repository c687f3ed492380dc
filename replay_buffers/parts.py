"""What the parts of a replay buffer have in common."""

from typing import Any


class Stateless:
    """For a part that remembers nothing between samples and has no figures to report."""

    def stats(self) -> dict[str, float]:
        """Figures since the last call, for the run's metrics."""
        return {}

    def get_state(self) -> dict[str, Any]:
        """What a checkpoint has to carry."""
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from `get_state`'s value."""
