"""How far one run of SAC gets on dm_control's walker_walk, beside a policy that acts at random.

    python -m benchmarks.walker run         some 11 minutes on one core; the same command goes on
    python -m benchmarks.walker report      docs/walker.png and benchmarks/results/walker.json

A return is the sum of 1,000 rewards between 0 and 1. All settings but the budget are those of
`configs/` (the first 10,000 env steps are random, then one update per env step).
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from interreplay.environments import make_env
from interreplay.launch.settings.resolution import parse
from interreplay.results import RunFolder

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "benchmarks" / "results" / "walker.json"
PICTURE = ROOT / "docs" / "walker.png"
ENV, SEED, BUDGET, WARM_UP, EPISODES = "dmc/walker_walk", 0, 60_000, 10_000, 5
FLAGS = [
    *("--trainer", "SAC", "--env", ENV, "--total_timesteps", str(BUDGET)),
    *("--timesteps_per_iteration", "2500", "--evaluation_num_episodes", str(EPISODES)),
    *("--checkpoint_freq", "4", "--num_cpus", "1", "--seed", str(SEED), "--agent_name", "walker"),
]
_RANDOM_EPISODES = 20
_SMALL: dict[str, Any] = {"ha": "center", "va": "top", "fontsize": 8}


def random_returns(episodes: int) -> list[float]:
    """Returns of episodes whose every action is uniform over the action box."""
    env = make_env(ENV)
    env.action_space.seed(SEED)
    returns = []
    for episode in range(episodes):
        env.reset(seed=SEED + episode)
        total, ended = 0.0, False
        while not ended:
            _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            total, ended = total + reward, terminated or truncated
        returns.append(total)
    return returns


def measured(folder: RunFolder) -> dict[str, Any]:
    """What the folder's run has shown so far, which may be less than its budget."""
    evaluated = folder.evaluations()
    returns = random_returns(_RANDOM_EPISODES)
    return {
        "command": f"python3 custom_training.py {' '.join(FLAGS)}",
        "return": f"mean and standard deviation of {EPISODES} deterministic episodes",
        "curve": [
            [
                report["env_steps"],
                round(report["evaluation_return_mean"], 1),
                round(report["evaluation_return_std"], 1),
            ]
            for report in evaluated
        ],
        "random_return": {
            "mean": round(float(np.mean(returns)), 1),
            "std": round(float(np.std(returns)), 1),
            "episodes": _RANDOM_EPISODES,
        },
        "budget": BUDGET,
        "wall_s": round(evaluated[-1]["wall_s"]),
        "git_revision": json.loads(folder.run.read_text())["git_revision"],
    }


def draw(record: dict[str, Any]) -> None:
    """The curve with its band over episodes, the random policy's line, the warm-up in grey."""
    steps, means, deviations = np.array(record["curve"]).T
    random = record["random_return"]["mean"]
    figure = Figure(figsize=(6.4, 3.6), dpi=130, layout="constrained")
    axes = figure.subplots()
    axes.axvspan(0, WARM_UP / 1000, color="#eeeeee", lw=0)
    top = axes.get_xaxis_transform()
    axes.text(WARM_UP / 2000, 0.97, "random,\nno updates", transform=top, **_SMALL)
    axes.fill_between(
        steps / 1000, means - deviations, means + deviations, color="#0072B2", alpha=0.2, lw=0
    )
    label = f"SAC, 1 seed: mean and std of {EPISODES} episodes"
    axes.plot(steps / 1000, means, color="#0072B2", label=label)
    axes.axhline(random, color="#D55E00", ls="--", label=f"uniform random policy: {random:.0f}")
    axes.set(xlim=(0, record["budget"] / 1000), ylim=(0, None))
    axes.set(xlabel="1,000 env steps", ylabel=f"{ENV}: return (at most 1,000)")
    axes.spines[["top", "right"]].set_visible(False)
    beside = (WARM_UP / record["budget"], 1.0)
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=beside, fontsize=8)
    figure.savefig(PICTURE)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("what", choices=("run", "report"))
    parser.add_argument("--out", default="results", help="folder of the run")
    arguments = parser.parse_args()
    settings, _ = parse([*FLAGS, "--local_dir", str(Path(arguments.out).absolute())])
    if arguments.what == "run":
        from interreplay.launch.kinds.replay import ReplayRun
        from interreplay.launch.running.run import train

        train(ReplayRun(settings))
        return 0
    record = measured(RunFolder.locate(settings.local_dir, *settings.place))
    RECORD.parent.mkdir(exist_ok=True)
    RECORD.write_text(json.dumps(record, indent=1) + "\n")
    draw(record)
    print(f"{record['curve'][-1]} against {record['random_return']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
