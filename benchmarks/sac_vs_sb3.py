"""SAC here against Stable-Baselines3's SAC: updates per second, and returns after the same steps.

    pip install -e '.[bench]'
    python -m benchmarks.sac_vs_sb3 speed                      # ratios 1 and 20, interleaved
    python -m benchmarks.sac_vs_sb3 returns --seeds 0 1 2      # 20,000 steps each, about 15 minutes

Same environment, networks (256-256 ReLU), batch (256), learning rates, warm-up and torch threads.
Every measurement is a process of its own; ours and theirs alternate (or, for returns, run side by
side), so that a machine whose speed drifts treats both alike: what counts is the ratio in a pair.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ENV, WARM_UP, BATCH, NETS = "HalfCheetah-v5", 1000, 256, (256, 256)
RESULTS = Path(__file__).parent / "results"


def ours(seed: int, steps: int, ratio: int, threads: int, recipe: str) -> dict[str, Any]:
    """Warm up, time `steps` env steps with their updates, evaluate."""
    import torch

    from interreplay.algorithms.sac import SACConfig
    from interreplay.launch.running.private_ray import private_ray

    torch.set_num_threads(threads)
    config = SACConfig().environment(ENV).debugging(seed=seed)
    config.replay(
        recipe=recipe,
        ratio=ratio,
        learning_starts=WARM_UP,
        timesteps_per_iteration=WARM_UP,
        total_timesteps=WARM_UP + steps,
    )
    config.evaluate_episodes(interval=10**9, episodes=10)
    with private_ray(0):
        algorithm = config.build_algo()
        algorithm.train()
        started = time.perf_counter()
        while algorithm.env_steps < WARM_UP + steps:
            algorithm.train()
        seconds = time.perf_counter() - started
        returns = algorithm.evaluate()["env_runners"]["episode_returns"]
        updates = algorithm.updates
        algorithm.stop()
    return _measured(updates, seconds, list(map(float, returns)))


def sb3(seed: int, steps: int, ratio: int, threads: int, recipe: str) -> dict[str, Any]:
    """The same with Stable-Baselines3."""
    import gymnasium as gym
    import torch
    from stable_baselines3 import SAC
    from stable_baselines3.common.evaluation import evaluate_policy

    torch.set_num_threads(threads)
    model = SAC(
        "MlpPolicy",
        gym.make(ENV),
        learning_starts=WARM_UP,
        batch_size=BATCH,
        train_freq=1,
        gradient_steps=ratio,
        policy_kwargs={"net_arch": list(NETS)},
        seed=seed,
        device="cpu",
    )
    model.learn(WARM_UP)
    before, started = model._n_updates, time.perf_counter()
    model.learn(steps, reset_num_timesteps=False)
    seconds = time.perf_counter() - started
    returns, _ = evaluate_policy(
        model, gym.make(ENV), n_eval_episodes=10, return_episode_rewards=True, warn=False
    )
    return _measured(model._n_updates - before, seconds, list(map(float, returns)))


def _measured(updates: int, seconds: float, returns: list[float]) -> dict[str, Any]:
    return {
        "updates": updates,
        "updates_per_s": updates / seconds,
        "return_mean": statistics.fmean(returns),
    }


def _in_process(who: str, **options: Any) -> dict[str, Any]:
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "benchmarks.sac_vs_sb3", "one", "--who", who]
        + [word for k, v in options.items() for word in (f"--{k}", str(v))],
        capture_output=True,
        text=True,
    )
    if run.returncode:
        raise RuntimeError(f"{who} failed:\n{run.stderr}")
    result: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return result


def _pair(label: str, together: bool = False, **options: Any) -> dict[str, Any]:
    with ThreadPoolExecutor(2 if together else 1) as pool:
        both = [pool.submit(_in_process, who, **options) for who in ("ours", "sb3")]
        mine, theirs = (future.result() for future in both)
    row = {**options, "ours": mine, "sb3": theirs}
    row["speed_ratio"] = mine["updates_per_s"] / theirs["updates_per_s"]
    print(
        f"{label:<22} ours {mine['updates_per_s']:6.1f} updates/s, return "
        f"{mine['return_mean']:8.1f}   sb3 {theirs['updates_per_s']:6.1f} updates/s, return "
        f"{theirs['return_mean']:8.1f}   speed ratio {row['speed_ratio']:.2f}",
        flush=True,
    )
    return row


def _save(name: str, rows: list[dict[str, Any]]) -> None:
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"sac_vs_sb3_{name}.json"
    command = f"python -m benchmarks.sac_vs_sb3 {' '.join(sys.argv[1:])}"
    path.write_text(json.dumps({"command": command, "env": ENV, "pairs": rows}, indent=1) + "\n")
    print(f"written to {path}")


def speed(arguments: argparse.Namespace) -> None:
    """2,000 updates at each replay ratio, as often as asked."""
    rows = []
    for ratio in (1, 20):
        for repeat in range(arguments.repeats):
            rows.append(
                _pair(
                    f"replay ratio {ratio}, run {repeat}",
                    seed=repeat,
                    steps=2000 // ratio,
                    ratio=ratio,
                    threads=arguments.threads,
                    recipe=arguments.recipe,
                )
            )
    for ratio in (1, 20):
        ratios = [row["speed_ratio"] for row in rows if row["ratio"] == ratio]
        print(f"replay ratio {ratio}: median speed ratio {statistics.median(ratios):.2f}")
    _save("speed", rows)


def returns(arguments: argparse.Namespace) -> None:
    """20,000 steps at replay ratio 1 for each seed, ours and theirs at once, a thread each."""
    rows = [
        _pair(
            f"seed {seed}",
            seed=seed,
            steps=20_000 - WARM_UP,
            ratio=1,
            threads=1,
            recipe=arguments.recipe,
            together=True,
        )
        for seed in arguments.seeds
    ]
    for who in ("ours", "sb3"):
        values = [row[who]["return_mean"] for row in rows]
        print(
            f"{who}: {', '.join(f'{v:.0f}' for v in values)}; mean {statistics.fmean(values):.0f}"
        )
    _save("returns", rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=("speed", "returns", "one"))
    parser.add_argument("--repeats", type=int, default=5, help="pairs at each replay ratio")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--recipe", default="vanilla", help="ours only; SB3 has no other")
    for name in ("--who", "--seed", "--steps", "--ratio"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.what == "one":
        run = {"ours": ours, "sb3": sb3}[arguments.who]
        measured = run(
            int(arguments.seed),
            int(arguments.steps),
            int(arguments.ratio),
            arguments.threads,
            arguments.recipe,
        )
        print(json.dumps(measured))
    else:
        {"speed": speed, "returns": returns}[arguments.what](arguments)


if __name__ == "__main__":
    main()
