"""Does a meta-policy learned from data alone beat the behaviour that wrote them?

    python -m benchmarks.focal_toy                           # FOCAL, 7,000 updates, some minutes
    python -m benchmarks.focal_toy --methods focal batch_pearl --updates 1000

A point that is to reach goals on the half circle; the data are those of a mediocre, noisy behaviour
made in numpy. Returns are those of the deterministic policy with z from the task's own data; every
third task is held out. 0 is a behaviour that moves at random, 1 the one that wrote the data.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from interreplay.focal.algorithm import FocalConfig
from interreplay.focal.data import TaskData
from interreplay.focal.reading import read
from interreplay.focal.settings import METHODS
from interreplay.launch.running.private_ray import private_ray
from tests.meta_data import HORIZON, PointSource, goals, rollout

TASKS, EPISODES, EVALUATIONS = 16, 40, 7
RESULTS = Path(__file__).parent / "results" / "focal_toy.json"


def normalised(algorithm: Any, data: TaskData, rng: np.random.Generator) -> float:
    """(R - R_random) / (R_behaviour - R_random), undiscounted."""
    goal = goals(TASKS)[data.task]
    z, _ = algorithm.embed(data)
    policy = algorithm.meta_policy()
    mine = rollout(goal, lambda position: policy.act(position, z), 1)[2].sum()
    noise = rollout(goal, lambda position: rng.uniform(-1, 1, position.shape), 200)[2].sum() / 200
    rewards = data.storage.schema.unpack(data.storage.rows)["rewards"]
    behaviour = rewards.sum() * HORIZON / len(rewards)
    return float((mine - noise) / (behaviour - noise))


def learn(method: str, updates: int, seed: int) -> dict[str, Any]:
    """Train one method; its returns along the way and at the end, task by task."""
    algo = {
        "meta_batch": 8,
        "batch_size": 64,
        "embedding_batch_size": 64,
        "num_train_steps_per_itr": updates // EVALUATIONS,
        "data_schedule": "all",
        "discount": 0.9,
        "reward_scale": 20,
        "alpha_init": 5.0,
        "alpha_max": 20.0,
        "alpha_lr": 0.01,
        "target_divergence": 0.5,
    }
    sizes = {"latent_size": 5, "net_size": 64}
    settings = read({**sizes, "algo_params": algo}, method)
    source = PointSource(tasks=TASKS, episodes=EPISODES, held_out=True)
    config = FocalConfig().debugging(seed=seed).meta(settings=settings, source=source)
    algorithm = config.build_algo()
    rng = np.random.default_rng(seed)
    curve: list[dict[str, float]] = []
    for _ in range(EVALUATIONS):
        algorithm.train()
        train = [normalised(algorithm, data, rng) for data in algorithm.data.train]
        test = {data.task: normalised(algorithm, data, rng) for data in algorithm.data.test}
        point = {"updates": algorithm.train_steps, "train": float(np.mean(train))}
        curve.append({**point, "held_out": float(np.mean(list(test.values())))})
        print(method, seed, {k: round(v, 2) for k, v in curve[-1].items()}, flush=True)
    algorithm.stop()
    by_task = {str(task): round(value, 2) for task, value in test.items()}
    return {"method": method, "seed": seed, "curve": curve, "held_out_by_task": by_task}


def main() -> None:
    """Train, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--methods", nargs="+", default=["focal"], choices=tuple(METHODS))
    parser.add_argument("--updates", type=int, default=7000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    options = parser.parse_args()
    torch.set_num_threads(1)
    with private_ray(0):
        runs = [learn(m, options.updates, seed) for m in options.methods for seed in options.seeds]
    RESULTS.write_text(json.dumps(runs, indent=2) + "\n")


if __name__ == "__main__":
    main()
