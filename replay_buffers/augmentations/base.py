"""What every augmentation gets and gives back."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from replay_buffers.storage import Bools, Floats, Schema


@dataclass
class Sample:
    """Rows on their way from storage to the learner.

    Attributes:
        schema: names the columns.
        rows: `[n, width]` float32, a copy that the augmentation may overwrite.
        weights: `[n]` float32, what each row counts in the critic's loss.
        partners: `[n, width]` float32, partner rows; None for a recipe without partners.
        partnered: `[n]` bool, which rows have a partner at all.
        partner_weights: `[n]` float32, the partners' own weights.
    """

    schema: Schema
    rows: Floats
    weights: Floats
    partners: Floats | None = None
    partnered: Bools | None = None
    partner_weights: Floats | None = None


class Augmentation(Protocol):
    """Changes a sample in place; draws only from the generator it is given."""

    def __call__(self, sample: Sample, rng: np.random.Generator) -> None: ...

    def stats(self) -> dict[str, float]:
        """Figures since the last call, for the run's metrics."""

    def get_state(self) -> dict[str, Any]: ...

    def set_state(self, state: dict[str, Any]) -> None: ...


class Stateless:
    """For an augmentation that remembers nothing between samples."""

    def stats(self) -> dict[str, float]:
        return {}

    def get_state(self) -> dict[str, Any]:
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        pass


class Identity(Stateless):
    """Rows as they were lived."""

    def __call__(self, sample: Sample, rng: np.random.Generator) -> None:
        pass
