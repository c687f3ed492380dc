"""Does everything learn? Every trainer with every recipe on two environments with known answers.

    python -m benchmarks.learning run               one run a core; the same command again goes on
    python -m benchmarks.learning report            docs/learning.md from the finished runs

InvertedPendulum-v5 is solved at a return of 1000, Pendulum-v1 at about -150. SAC runs three seeds,
TD3 and DDPG one.
"""

import argparse
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interreplay.launch.private_ray import allotted_cpus
from interreplay.results import RunFolder
from replay_buffers.catalog import CATALOG

ROOT = Path(__file__).resolve().parents[1]
AGENT = "learning"
# Environment -> (budget, env steps in an iteration, the return that counts as learned).
ENVIRONMENTS = {
    "Pendulum-v1": (8_000, 1_000, -200.0),
    "InvertedPendulum-v5": (25_000, 2_500, 900.0),
}
EPISODES = 10


@dataclass(frozen=True)
class Job:
    """One run of the study."""

    trainer: str
    recipe: str
    env: str
    seed: int

    @property
    def buffer(self) -> str:
        return self.recipe.removesuffix("-per")

    @property
    def argv(self) -> list[str]:
        """Flags of `custom_training.py`, all but where the results go."""
        budget, iteration, _ = ENVIRONMENTS[self.env]
        return [
            *("--trainer", self.trainer, "--env", self.env, "--buffer", self.buffer),
            *(["--prioritized_replay"] if self.recipe == "nmer-per" else []),
            *("--total_timesteps", str(budget), "--timesteps_per_iteration", str(iteration)),
            *("--evaluation_num_episodes", str(EPISODES), "--checkpoint_freq", "0"),
            *("--num_cpus", "1", "--seed", str(self.seed), "--agent_name", AGENT),
        ]

    def folder(self, out: str) -> RunFolder:
        return RunFolder.locate(out, AGENT, self.env, self.trainer, self.recipe, self.seed)

    def result(self, out: str) -> dict[str, Any] | None:
        """The run's last report; None when it has not finished."""
        folder = self.folder(out)
        try:
            finished = json.loads(folder.run.read_text())["state"] == "finished"
            return folder.reports()[-1] if finished else None
        except (OSError, ValueError, KeyError):
            return None


def jobs() -> list[Job]:
    """Seed 0 of everything first, so that a combination that fails shows early."""
    recipes = [*CATALOG, "nmer-per"]
    return [
        Job(trainer, recipe, env, seed)
        for seed in (0, 1, 2)
        for env in ENVIRONMENTS
        for trainer in (("TD3", "DDPG", "SAC") if seed == 0 else ("SAC",))
        for recipe in recipes
    ]


def run(out: str, workers: int) -> int:
    """Run what has not finished yet; returns how many failed."""
    todo = [job for job in jobs() if job.result(out) is None]
    print(f"{len(jobs()) - len(todo)} of {len(jobs())} runs have finished, {workers} at once")
    logs = Path(out).expanduser() / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    failed = []

    def one(job: Job) -> None:
        name = f"{job.trainer} {job.recipe} {job.env} seed {job.seed}"
        started = time.perf_counter()
        with open(logs / f"{name.replace(' ', '_')}.log", "w") as log:
            code = subprocess.run(
                [sys.executable, "custom_training.py", *job.argv, "--local_dir", out],
                cwd=ROOT,
                stdout=log,
                stderr=log,
            ).returncode
        result, seconds = job.result(out), time.perf_counter() - started
        if code or result is None:
            failed.append(job)
            print(f"{name}: FAILED (exit code {code}), see {log.name}", flush=True)
        else:
            mean = result["evaluation_return_mean"]
            print(f"{name}: return {mean:.1f} ({seconds:.0f} s)", flush=True)

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(one, todo))
    return len(failed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("what", choices=("run", "report"))
    parser.add_argument("--out", default="results", help="folder of the runs")
    parser.add_argument("--workers", type=int, default=allotted_cpus(), help="runs at once")
    arguments = parser.parse_args()
    if arguments.what == "run":
        return 1 if run(str(Path(arguments.out).absolute()), arguments.workers) else 0
    raise NotImplementedError


if __name__ == "__main__":
    sys.exit(main())
