"""Does everything learn? Every trainer with every recipe on two environments with known answers.

    python -m benchmarks.learning run               one run a core; the same command again goes on
    python -m benchmarks.learning report            docs/learning.md and its figure, from what ran

InvertedPendulum-v5 is solved at a return of 1000, Pendulum-v1 at about -150. SAC runs three seeds,
TD3 and DDPG one. Results that are in benchmarks/results/learning.json are not run again.
"""

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from interreplay.launch.kinds.replay import ReplayRun
from interreplay.launch.running.sweep import report as summarize
from interreplay.launch.running.sweep import run_many
from interreplay.launch.settings.resolution import parse
from interreplay.results import RunFolder

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "benchmarks" / "results" / "learning.json"
PAGE, PICTURE = ROOT / "docs" / "learning.md", ROOT / "docs" / "learning.png"
AGENT = "learning"
# Environment -> (budget, env steps in an iteration, the return that counts as learned).
ENVIRONMENTS = {
    "Pendulum-v1": (8_000, 1_000, -200.0),
    "InvertedPendulum-v5": (25_000, 2_500, 900.0),
}
TRAINERS = ("SAC", "TD3", "DDPG")
# Row of the table -> flags that make it, besides trainer and environment.
RECIPES = {
    "vanilla": ("--buffer", "vanilla"),
    "per": ("--buffer", "per"),
    "gaussian": ("--buffer", "gaussian"),
    "s4rl": ("--buffer", "s4rl", "--s4rl_view", "mixup"),
    "s4rl mixup_obs": ("--buffer", "s4rl", "--s4rl_view", "mixup_obs"),
    "mixup": ("--buffer", "mixup"),
    "ct": ("--buffer", "ct"),
    "nmer": ("--buffer", "nmer"),
    "nmer-per": ("--buffer", "nmer", "--prioritized_replay"),
    "bier": ("--buffer", "bier"),
}
# A run's folder does not show its view, and older folders of s4rl hold what is now `mixup_obs`.
AGENTS = {"s4rl": f"{AGENT}-mixup", "s4rl mixup_obs": f"{AGENT}-mixup_obs"}
EPISODES = 10


@dataclass(frozen=True)
class Job:
    """One run of the study."""

    trainer: str
    recipe: str
    env: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.trainer} {self.recipe} {self.env} seed {self.seed}"

    @property
    def agent(self) -> str:
        """The experiment's folder: no two rows of the table share a run's."""
        return AGENTS.get(self.recipe, AGENT)

    @property
    def argv(self) -> list[str]:
        """Flags of `custom_training.py`, all but where the results go."""
        budget, iteration, _ = ENVIRONMENTS[self.env]
        return [
            *("--trainer", self.trainer, "--env", self.env),
            *RECIPES[self.recipe],
            *("--total_timesteps", str(budget), "--timesteps_per_iteration", str(iteration)),
            *("--evaluation_num_episodes", str(EPISODES), "--checkpoint_freq", "0"),
            *("--num_cpus", "1", "--seed", str(self.seed), "--agent_name", self.agent),
        ]

    def result(self, out: str) -> dict[str, Any] | None:
        """What the study keeps of a finished run; None when it has not finished."""
        label = self.recipe.partition(" ")[0]
        folder = RunFolder.locate(out, self.agent, self.env, self.trainer, label, self.seed)
        if folder.state != "finished":
            return None
        evaluated = folder.evaluations()
        return {
            "return": evaluated[-1]["evaluation_return_mean"],
            "std_over_episodes": evaluated[-1]["evaluation_return_std"],
            "curve": [[r["env_steps"], round(r["evaluation_return_mean"], 1)] for r in evaluated],
            "wall_s": round(evaluated[-1]["wall_s"]),
            "git_revision": json.loads(folder.run.read_text())["git_revision"],
        }


def jobs() -> list[Job]:
    """Seed 0 of everything first, so that a combination that fails shows early."""
    return [
        Job(trainer, recipe, env, seed)
        for seed in (0, 1, 2)
        for env in ENVIRONMENTS
        for trainer in (("TD3", "DDPG", "SAC") if seed == 0 else ("SAC",))
        for recipe in RECIPES
    ]


def collect(out: str) -> dict[Job, dict[str, Any]]:
    """Results by job, those on record first."""
    recorded = json.loads(RECORD.read_text())["runs"] if RECORD.exists() else {}
    results = {job: recorded.get(job.name) or job.result(out) for job in jobs()}
    return {job: result for job, result in results.items() if result is not None}


def run(out: str, workers: int | None, env: str | None = None) -> int:
    """Run what has no result yet (on `env` alone, if given); the exit code."""
    done = collect(out)
    todo = [job for job in jobs() if job not in done and env in (None, job.env)]
    print(f"{len(done)} of {len(jobs())} runs have finished", flush=True)
    if not todo:
        return 0
    runs = [parse([*job.argv, "--local_dir", out])[0] for job in todo]
    return summarize(run_many([ReplayRun(settings) for settings in runs], workers))


# -- the page ------------------------------------------------------------------------------------


def report(out: str) -> None:
    """Write the record, the figure and the table of `docs/learning.md`."""
    results = collect(out)
    RECORD.parent.mkdir(exist_ok=True)
    record = {
        "command": "python -m benchmarks.learning run",
        "return": f"mean of {EPISODES} deterministic episodes at the end of the budget",
        "runs": {job.name: result for job, result in results.items()},
    }
    RECORD.write_text(json.dumps(record, indent=1) + "\n")
    _draw(results)
    text = PAGE.read_text() if PAGE.exists() else f"{_BEGIN}\n{_END}\n"
    before, rest = text.split(_BEGIN)
    PAGE.write_text(f"{before}{_BEGIN}\n{_table(results)}\n{_END}{rest.split(_END)[1]}")
    print(_table(results))


_BEGIN, _END = "<!-- table: python -m benchmarks.learning report -->", "<!-- end of table -->"


def _table(results: dict[Job, dict[str, Any]]) -> str:
    """A row a recipe, a column a trainer and environment; what is below the bar is in bold."""
    columns = [(env, trainer) for env in ENVIRONMENTS for trainer in TRAINERS]
    lines = [
        "| recipe | " + " | ".join(f"{trainer}, {env}" for env, trainer in columns) + " |",
        "|---" * (len(columns) + 1) + "|",
    ]
    for recipe in RECIPES:
        cells = []
        for env, trainer in columns:
            mine = [
                job
                for job in jobs()
                if (job.env, job.trainer, job.recipe) == (env, trainer, recipe)
            ]
            bar = ENVIRONMENTS[env][2]
            texts = []
            for job in mine:
                value = results[job]["return"] if job in results else None
                text = "not run" if value is None else f"{value:.0f}"
                texts.append(text if value is None or value >= bar else f"**{text}**")
            cells.append(", ".join(texts))
        lines.append(f"| {recipe} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _draw(results: dict[Job, dict[str, Any]]) -> None:
    """A small picture per environment and recipe: one line a run, a colour a trainer."""
    # Okabe and Ito's palette: told apart by colour-blind readers and in grey.
    colours = {"SAC": "#0072B2", "TD3": "#E69F00", "DDPG": "#009E73"}
    figure = Figure(figsize=(15.5, 5.2), dpi=130, layout="constrained")
    grid = figure.subplots(len(ENVIRONMENTS), len(RECIPES), sharey="row", sharex="row")
    for row, (env, (budget, _, bar)) in zip(grid, ENVIRONMENTS.items(), strict=True):
        for axes, recipe in zip(row, RECIPES, strict=True):
            for job, result in results.items():
                if (job.env, job.recipe) == (env, recipe):
                    x, y = np.array(result["curve"]).T
                    axes.plot(x / 1000, y, color=colours[job.trainer], lw=1.2)
            axes.axhline(bar, color="#777777", lw=0.8, ls=":")
            axes.set_title(recipe, fontsize=9)
            axes.set_xlim(0, budget / 1000)
            axes.spines[["top", "right"]].set_visible(False)
            axes.tick_params(labelsize=7)
        row[0].set_ylabel(f"{env}\nreturn", fontsize=8)
    for axes in grid[-1]:
        axes.set_xlabel("1,000 env steps", fontsize=8)
    for trainer, colour in colours.items():
        seeds = "up to 3 seeds" if trainer == "SAC" else "1 seed"
        grid[0][0].plot([], [], color=colour, label=f"{trainer}, {seeds}")
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    figure.savefig(PICTURE)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("what", choices=("run", "report"))
    parser.add_argument("--out", default="results", help="folder of the runs")
    parser.add_argument("--workers", type=int, help="runs at once (default: one a core)")
    parser.add_argument("--env", choices=tuple(ENVIRONMENTS), help="run this environment alone")
    arguments = parser.parse_args()
    out = str(Path(arguments.out).absolute())
    if arguments.what == "run":
        return run(out, arguments.workers, arguments.env)
    report(out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
