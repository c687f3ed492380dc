"""Transitions that a SAC run has seen, for judging what recipes make of them.

python -m benchmarks.bier_rows --steps 20000      # trains, writes results/bier_rows_20000.npz
"""

import argparse
import statistics
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from replay_buffers.storage import Floats, Ints

ENV = "HalfCheetah-v5"
# Not among the results that are committed: it takes a run of a quarter of an hour, or 14 MB.
CACHE = Path(__file__).parents[1] / "results"


@dataclass(frozen=True)
class Lived:
    """What a run has lived.

    Attributes:
        rows, episode, step: of its n transitions, as `Storage.add` takes them.
        return_mean: of its policy at the end, over five episodes.
    """

    rows: Floats
    episode: Ints
    step: Ints
    return_mean: float


def lived(steps: int) -> Lived:
    """The rows of a SAC run on HalfCheetah of `steps` env steps, trained once and then kept."""
    path = _path(steps)
    if path.exists():
        kept = np.load(path)
        return Lived(kept["rows"], kept["episode"], kept["step"], float(kept["return_mean"]))
    found = _train(steps)
    path.parent.mkdir(exist_ok=True)
    np.savez(path, **vars(found))
    return found


def _path(steps: int) -> Path:
    return CACHE / f"bier_rows_{steps}.npz"


def _train(steps: int) -> Lived:
    from interreplay.algorithms.sac import SACConfig
    from interreplay.launch.running.private_ray import private_ray

    config = SACConfig().environment(ENV).debugging(seed=0)
    config.replay(
        learning_starts=min(1000, steps // 2), timesteps_per_iteration=steps, buffer_size=steps
    )
    config.evaluate_episodes(interval=1, episodes=5)
    with private_ray(0):
        algorithm = config.build_algo()
        report = algorithm.train()
        storage = algorithm.buffer.storage.get_state()
        algorithm.stop()
    returns = report["evaluation"]["env_runners"]["episode_returns"]
    mean = statistics.fmean(map(float, returns))
    return Lived(storage["rows"], storage["episode"], storage["step"], mean)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=20_000, help="env steps of the run")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    found = lived(arguments.steps)
    print(
        f"{len(found.rows):,} env steps, return {found.return_mean:.0f}: {_path(arguments.steps)}"
    )


if __name__ == "__main__":
    main()
