"""Every step has two rewards, a dense and a sparse one; one of them drives."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["dense", "sparse"]


def sparse(dense: float, threshold: float) -> float:
    """The part of a dense reward above `threshold`, in units of the threshold's size; else 0.

    With threshold -.2 and the dense reward -distance this is (.2 - distance) / .2 within .2 of the
    goal: 1 at the goal, 0 at the rim and beyond.
    """
    return (dense - threshold) / abs(threshold) if dense >= threshold else 0.0


@dataclass(frozen=True)
class Rewards:
    """Which reward `step` returns; both are in its info.

    Attributes:
        threshold: the dense reward from which the sparse one begins; not 0.
        drives: which of the two `step` returns.
    """

    threshold: float
    drives: Kind = "dense"

    def __call__(self, dense: float) -> tuple[float, dict[str, float]]:
        """The reward that drives, and both under `reward_dense` and `reward_sparse`."""
        both = {"reward_dense": dense, "reward_sparse": sparse(dense, self.threshold)}
        return both[f"reward_{self.drives}"], both
