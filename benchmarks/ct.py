"""What ct's energy model costs: a batch of 256 next to one SAC update, in the same run.

    python -m benchmarks.ct

HalfCheetah's dimensions, networks of 256-256, one thread. In each round every contender takes its
turn, so that a machine whose speed drifts treats all alike; the ratios count. "by autograd" is the
same learning with recorded gradients and an evaluation at a time, which is what ct did once.
"products alone" are the matrix products that the learning can't do without, into tensors that are
there already: no implementation with the same results is faster than that.
"""

import argparse
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from interreplay.algorithms.sac import SACConfig
from interreplay.launch.running.private_ray import private_ray
from replay_buffers import ReplayBuffer
from replay_buffers.augmentations.energy_model import EnergyModel
from replay_buffers.storage import Bools, Floats

ENV, OBS, ACTION = "HalfCheetah-v5", 17, 6
BATCH, HIDDEN, ROWS = 256, 256, 20_000
BAR = 0.25
RESULTS = Path(__file__).parent / "results" / "ct.json"


class ByAutograd(EnergyModel):
    """The same learning, recorded by autograd and stepped by torch's Adam."""

    def optimize(self, learning_rate: float) -> None:
        self._adam = torch.optim.Adam(self._net.parameters(), lr=learning_rate)

    def step(
        self, real: Floats, partners: Floats, mixture: Floats, lam: Floats, mixed: Bools
    ) -> float:
        known = torch.from_numpy(np.concatenate([real, partners]))
        predicted = self._net(known[:, self._features])
        loss = nn.functional.mse_loss(predicted, known[:, self._outputs])
        self._adam.zero_grad()
        loss.backward()
        self._adam.step()
        with torch.no_grad():
            of_x, of_y, of_mixture = (
                self._net(torch.from_numpy(rows[:, self._features]))
                for rows in (real[mixed], partners, mixture)
            )
            line = of_y + torch.from_numpy(lam)[:, None] * (of_x - of_y)
            return float(((of_mixture - line) ** 2).mean())


def filled(recipe: str, **settings: Any) -> ReplayBuffer:
    """A buffer of random episodes of 1,000 steps."""
    buffer = ReplayBuffer.from_catalog(
        recipe, obs_dim=OBS, action_dim=ACTION, capacity=ROWS, seed=0, **settings
    )
    rng = np.random.default_rng(0)
    obs, new_obs = rng.normal(size=(2, ROWS, OBS))
    actions, rewards = rng.uniform(-1, 1, (ROWS, ACTION)), rng.normal(size=ROWS)
    zeros, number = np.zeros(ROWS), np.arange(ROWS)
    rows = buffer.schema.pack(obs, actions, rewards, new_obs, zeros, zeros)
    buffer.add(rows, number // 1000, number % 1000)
    return buffer


def with_autograd() -> ReplayBuffer:
    """A ct buffer that learns as it did once."""
    buffer = filled("ct")
    augmentation: Any = buffer.augmentation
    augmentation._model = ByAutograd(buffer.schema, 0, 3e-4)
    return buffer


def sac_update() -> Callable[[], Any]:
    """One update of the SAC learner on a fixed minibatch."""
    learner = SACConfig().environment(ENV).debugging(seed=0).build_learner(env=gym.make(ENV))
    learner.build()
    batch: dict[str, Any] = filled("vanilla").sample(BATCH)
    batch.pop("receipt")
    tensors = {name: torch.from_numpy(column) for name, column in batch.items()}
    return lambda: learner.update_minibatch(tensors)


def products() -> Callable[[], None]:
    """Learning from 2 x 256 rows, then judging 256 mixtures: the products and nothing else."""
    sizes = (OBS + ACTION, HIDDEN, HIDDEN, OBS + 1)
    learned, judged = 2 * BATCH, 3 * BATCH
    weights = [torch.randn(a, b) for a, b in itertools.pairwise(sizes)]
    gradients = [torch.empty_like(weight) for weight in weights]
    values = [torch.randn(judged, size) for size in sizes]
    into = [torch.empty(judged, size) for size in sizes]

    def forward(rows: int) -> None:
        for layer, weight in enumerate(weights):
            torch.matmul(values[layer][:rows], weight, out=into[layer + 1][:rows])

    def backward(rows: int) -> None:
        for layer in reversed(range(len(weights))):
            above: Tensor = values[layer + 1][:rows]
            torch.matmul(values[layer][:rows].T, above, out=gradients[layer])
            if layer:
                torch.matmul(above, weights[layer].T, out=into[layer][:rows])

    def all_of_them() -> None:
        forward(learned)
        backward(learned)
        forward(judged)

    return all_of_them


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=300)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    ct, recorded, fixed = filled("ct"), with_autograd(), filled("ct", ct_fixed=True)
    with private_ray(0):
        contenders: dict[str, Callable[[], Any]] = {
            "SAC update": sac_update(),
            "ct batch": lambda: ct.sample(BATCH),
            "ct batch by autograd": lambda: recorded.sample(BATCH),
            "ct batch, b fixed": lambda: fixed.sample(BATCH),
            "products alone": products(),
        }
        milliseconds: dict[str, list[float]] = {name: [] for name in contenders}
        for number in range(20 + arguments.rounds):
            for name, contender in contenders.items():
                started = time.perf_counter()
                contender()
                if number >= 20:
                    milliseconds[name].append(1e3 * (time.perf_counter() - started))
    medians = {name: statistics.median(times) for name, times in milliseconds.items()}
    ratios = {
        name: statistics.median(
            mine / update for mine, update in zip(times, milliseconds["SAC update"], strict=True)
        )
        for name, times in milliseconds.items()
    }
    print(f"{'':<22}{'ms':>8}{'of a SAC update':>18}")
    for name, median in medians.items():
        print(f"{name:<22}{median:8.3f}{ratios[name]:18.2f}")
    print(f"asked for: {BAR:.2f}")
    content = {
        "command": f"python -m benchmarks.ct {' '.join(sys.argv[1:])}".strip(),
        "threads": 1,
        "batch": BATCH,
        "milliseconds": medians,
        "ratio_to_sac_update": ratios,
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(content, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
