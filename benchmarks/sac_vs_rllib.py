"""SAC on HalfCheetah-v5 against RLlib's own SAC, and where the difference comes from.

    python -m benchmarks.sac_vs_rllib run --seeds 0 1 2     one run a core; again, it goes on
    python -m benchmarks.sac_vs_rllib report                table, benchmarks/results/, docs/

From RLlib's SAC as it is to ours as it is, one change of settings after the other. All have the
same env steps, warm-up, batch (256), replay ratio (1), evaluations and one torch thread. What no
setting changes: RLlib warms up with its untrained policy, ours with random actions; RLlib's critics
encode observation and action apart.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interreplay.launch.running.private_ray import allotted_cpus
from interreplay.results import RunFolder

ROOT = Path(__file__).resolve().parents[1]
ENV, EPISODES, ITERATION = "HalfCheetah-v5", 5, 1000
_UNIFORM = {"type": "EpisodeReplayBuffer", "capacity": 1_000_000}


@dataclass(frozen=True)
class Variant:
    """One line of the comparison.

    Attributes:
        label: in the table and the figure.
        config: RLlib's settings over its defaults; None for ours.
        flags: of `custom_training.py`.
    """

    label: str
    config: dict[str, Any] | None = None
    flags: tuple[str, ...] = ()


# RLlib's SACConfig: actor_lr 3e-5, critic_lr and alpha_lr 3e-4, Huber loss, priorities with
# alpha 0.6 and beta 0.4 throughout.
VARIANTS = {
    "stock": Variant("RLlib's SAC as it is", {}),
    "stock_lr": Variant("RLlib, actor_lr 3e-4", {"actor_lr": 3e-4}),
    "stock_lr_uniform": Variant(
        "RLlib, actor_lr 3e-4, uniform replay",
        {"actor_lr": 3e-4, "replay_buffer_config": _UNIFORM},
    ),
    "ours_as_stock": Variant(
        "ours with RLlib's settings",
        flags=(
            *("--actor_lr", "3e-5", "--huber_loss", "--prioritized_replay"),
            *("--prioritized_replay_beta", "0.4", "--final_prioritized_replay_beta", "0.4"),
        ),
    ),
    "ours": Variant("ours as it is"),
}


@dataclass(frozen=True)
class Job:
    """One run of the study."""

    name: str
    seed: int
    steps: int
    learning_starts: int
    out: str

    @property
    def argv(self) -> list[str]:
        """The command, after the interpreter."""
        variant = VARIANTS[self.name]
        common = [
            *("--env", ENV, "--seed", str(self.seed), "--num_cpus", "1", "--checkpoint_freq", "0"),
            *("--evaluation_num_episodes", str(EPISODES), "--local_dir", self.out),
            *("--agent_name", f"sac_vs_rllib_{self.name}"),
        ]
        if variant.config is None:
            budget = ["--total_timesteps", str(self.steps)]
            budget += ["--learning_starts", str(self.learning_starts)]
            budget += ["--timesteps_per_iteration", str(ITERATION)]
            return ["custom_training.py", "--trainer", "SAC", *common, *budget, *variant.flags]
        config = {
            "num_steps_sampled_before_learning_starts": self.learning_starts,
            "min_sample_timesteps_per_iteration": min(ITERATION, self.steps),
            **variant.config,
        }
        command = ["-m", "interreplay.launch.rllib_command", "train", "--run", "SAC", *common]
        return [*command, "--stop-timesteps", str(self.steps), "--config", json.dumps(config)]

    @property
    def folder(self) -> RunFolder:
        variant = VARIANTS[self.name]
        recipe = "per" if "--prioritized_replay" in variant.flags else "vanilla"
        place = ("SAC", recipe) if variant.config is None else ("RLlib", "SAC")
        return RunFolder.locate(self.out, f"sac_vs_rllib_{self.name}", ENV, *place, self.seed)

    def reports(self) -> list[dict[str, Any]]:
        """Those of a finished run of this length; else none."""
        if self.folder.state != "finished":
            return []
        reports = self.folder.reports()
        return reports if reports[-1]["env_steps"] == self.steps else []

    @property
    def curve(self) -> list[tuple[int, float]]:
        return [(r["env_steps"], r["evaluation_return_mean"]) for r in self.folder.evaluations()]

    @property
    def final_return(self) -> float:
        """The mean of the last two evaluations."""
        return statistics.fmean(value for _, value in self.curve[-2:])


def run(jobs: list[Job], workers: int) -> int:
    """Run what has not finished yet, RLlib and ours in turn; returns how many failed."""
    todo = [job for job in jobs if not job.reports()]
    print(f"{len(jobs) - len(todo)} of {len(jobs)} runs have finished, {workers} at once")
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(_run_one, todo)).count(False)


def _run_one(job: Job) -> bool:
    logs = Path(job.out) / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    path, started = logs / f"{job.name}_seed{job.seed}.log", time.perf_counter()
    with open(path, "w") as log:
        code = subprocess.run(
            [sys.executable, *job.argv],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=log,
            stderr=log,
        ).returncode
    finished = bool(job.reports())
    state = f"return {job.final_return:.0f}" if finished else f"FAILED ({code}), see {path}"
    print(
        f"{job.name} seed {job.seed}: {state} ({time.perf_counter() - started:.0f} s)", flush=True
    )
    return finished


def _speed(reports: list[dict[str, Any]]) -> float | None:
    """Updates per second of collecting and learning, over the iterations that updated."""
    updates, seconds = 0, 0.0
    for before, after in itertools.pairwise(reports):
        made = after["updates"] - before["updates"]
        if made:
            updates += made
            seconds += made / after["updates_per_s"]
    return updates / seconds if updates else None


def report(jobs: list[Job], results: Path, figure: Path) -> None:
    """Print the table; write the figures behind it and the picture."""
    variants = {}
    for name, variant in VARIANTS.items():
        done = [(job, reports) for job in jobs if job.name == name and (reports := job.reports())]
        runs = [
            {
                "seed": job.seed,
                "final_return": job.final_return,
                "updates": reports[-1]["updates"],
                "updates_per_s": _speed(reports),
                "curve": job.curve,
                "command": ["python", *job.argv],
            }
            for job, reports in done
        ]
        if runs:
            variants[name] = {"label": variant.label, "runs": runs, **_summary(runs)}
    if not variants:
        sys.exit("no run of this length has finished yet: python -m benchmarks.sac_vs_rllib run")
    _add_ratios(variants)
    command = f"python -m benchmarks.sac_vs_rllib {' '.join(sys.argv[1:])}"
    content = {"command": command, "env": ENV, "steps": jobs[0].steps, "variants": variants}
    results.parent.mkdir(exist_ok=True)
    results.write_text(json.dumps(content, indent=1) + "\n")
    _print_table(variants)
    _draw(variants, jobs[0], figure)
    print(f"written to {results} and {figure}")


def _summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    speeds = [run["updates_per_s"] for run in runs if run["updates_per_s"]]
    finals = [run["final_return"] for run in runs]
    return {
        "final_return_mean": statistics.fmean(finals),
        "final_return_std": statistics.pstdev(finals),
        "updates_per_s_median": statistics.median(speeds) if speeds else None,
    }


def _add_ratios(variants: dict[str, Any]) -> None:
    """How fast and how good each is next to RLlib's SAC as it is."""
    stock = variants.get("stock")
    for variant in variants.values():
        speed, base = variant["updates_per_s_median"], stock and stock["updates_per_s_median"]
        variant["speed_ratio"] = speed / base if speed and base else None
        variant["return_gain"] = (
            variant["final_return_mean"] - stock["final_return_mean"] if stock else None
        )


def _print_table(variants: dict[str, Any]) -> None:
    print("| variant | seeds | final return (std over seeds) | gain | updates/s | x stock |")
    print("|---|---|---|---|---|---|")

    def shown(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    for v in variants.values():
        print(
            f"| {v['label']} | {len(v['runs'])} | {v['final_return_mean']:.0f} "
            f"({v['final_return_std']:.0f}) | {shown(v['return_gain'], '+.0f')} | "
            f"{shown(v['updates_per_s_median'], '.1f')} | {shown(v['speed_ratio'], '.2f')} |"
        )


def _draw(variants: dict[str, Any], job: Job, path: Path) -> None:
    """RLlib's curves on the left, ours on the right: thin for a seed, thick for their mean."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), dpi=150, layout="constrained")
    sides = figure.subplots(1, 2, sharex=True, sharey=True)
    colours = dict(
        zip(VARIANTS, ("#0072B2", "#56B4E9", "#009E73", "#E69F00", "#D55E00"), strict=True)
    )
    for name, variant in variants.items():
        axes = sides[0 if VARIANTS[name].config is not None else 1]
        curves = [dict(run["curve"]) for run in variant["runs"]]
        for curve in curves:
            axes.plot(*zip(*curve.items(), strict=True), color=colours[name], lw=0.7, alpha=0.5)
        shared = sorted(set.intersection(*map(set, curves)))
        mean = [statistics.fmean(curve[x] for curve in curves) for x in shared]
        label = f"{variant['label']} (n = {len(curves)})"
        axes.plot(shared, mean, color=colours[name], lw=2.2, label=label)
    for axes, title in zip(sides, ("RLlib's own SAC", "ours"), strict=True):
        axes.axvline(job.learning_starts, color="#777777", lw=1, ls=":")
        axes.set_title(f"{title} on {ENV}", fontsize=10)
        axes.set_xlabel("environment steps")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        if axes.lines[1:]:
            axes.legend(frameon=False, fontsize=8, loc="upper left")
    sides[0].set_ylabel(f"return, mean of {EPISODES} evaluation episodes")
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=("run", "report"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=10_000, help="env steps of each run")
    parser.add_argument("--learning-starts", type=int, default=1500, help="the same in all")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--workers", type=int, default=allotted_cpus(), help="runs at once")
    parser.add_argument("--out", default="results", help="folder of the runs")
    parser.add_argument("--json", default=ROOT / "benchmarks/results/sac_vs_rllib.json", type=Path)
    parser.add_argument("--figure", default=ROOT / "docs/sac_vs_rllib.png", type=Path)
    given = parser.parse_args()
    out = str(Path(given.out).expanduser().absolute())
    jobs = [
        Job(name, seed, given.steps, given.learning_starts, out)
        for seed in given.seeds
        for name in given.variants
    ]
    if given.what == "run":
        return 1 if run(jobs, given.workers) else 0
    report(jobs, given.json, given.figure)
    return 0


if __name__ == "__main__":
    sys.exit(main())
