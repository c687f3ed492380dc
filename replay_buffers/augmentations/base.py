"""What every augmentation gets and gives back."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from replay_buffers.parts import Stateless
from replay_buffers.storage import Bools, Floats, Ints, Schema


@dataclass
class Sample:
    """Rows on their way from storage to the learner.

    Attributes:
        schema: names the columns.
        rows: `[n, width]` float32, a copy that the augmentation may overwrite.
        weights: `[n]` float32, what each row counts in the critic's loss.
        added: rows added to the storage so far, which is the clock of schedules.
        partners: `[n, width]` float32, partner rows; None for a recipe without partners.
        partnered: `[n]` bool, which rows have a partner at all.
        partner_weights: `[n]` float32, the partners' own weights.
        steps, partner_steps: `[n]` int64, how many steps each row's reward sums over; None for 1.
        positions, neighbors: `[n]` and `[n, k]` int64, where the rows and their nearest neighbours
            (-1 for none) are stored; None for a recipe that asks for neither.
        lam: `[n]` float32, set by mixtures: the share of the sampled row, 1 where unmixed.
        mixed: `[n]` bool, set by mixtures that decide by row.
    """

    schema: Schema
    rows: Floats
    weights: Floats
    added: int = 0
    partners: Floats | None = None
    partnered: Bools | None = None
    partner_weights: Floats | None = None
    steps: Ints | None = None
    partner_steps: Ints | None = None
    positions: Ints | None = None
    neighbors: Ints | None = None
    lam: Floats | None = None
    mixed: Bools | None = None


def _silent(line: str) -> None:
    """Says nothing."""


@dataclass(frozen=True)
class Context:
    """What the learner lends to an augmentation that learns or asks.

    Attributes:
        learning_rate: the critic's.
        obs_gradient: obs `[n, o]` -> gradient of Q(s, pi(s)) with respect to s `[n, o]`; None when
            the learner is in another process.
        say: shows a line to whoever watches the run.
    """

    learning_rate: float
    obs_gradient: Callable[[Floats], Floats] | None = None
    say: Callable[[str], None] = _silent


class Augmentation(Protocol):
    """Changes a sample in place; draws only from the generator it is given."""

    # Views of each row in the sample that comes out: `views * n` rows, contiguous by view.
    views: int
    # Whether a batch depends on the learner's last update, so that only one is drawn at a time.
    sequential: bool

    def __call__(self, sample: Sample, rng: np.random.Generator) -> None: ...

    def attach(self, context: Context) -> None:
        """Told once, before the first sample, what the learner lends."""

    def stats(self) -> dict[str, float]:
        """Figures since the last call, for the run's metrics."""

    def get_state(self) -> dict[str, Any]: ...

    def set_state(self, state: dict[str, Any]) -> None: ...


class Plain(Stateless):
    """For an augmentation that neither learns nor asks, and gives one view of each row."""

    views = 1
    sequential = False

    def attach(self, context: Context) -> None:
        pass


class Identity(Plain):
    """Rows as they were lived."""

    def __call__(self, sample: Sample, rng: np.random.Generator) -> None:
        pass
