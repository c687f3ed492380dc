"""Does a run's memory grow? Resident memory over 200,000 updates, and over a whole run.

    python -m benchmarks.memory              # all of it, about half an hour; writes and draws
    python -m benchmarks.memory --only SAC   # measures one line anew, and draws
    python -m benchmarks.memory --only       # draws what has been measured

Pendulum-v1, a buffer of 2,000 rows that is full before anything is counted, batches of 256, two
layers of 16 units: what an update leaves behind does not depend on the width, and so 200,000 of
them take minutes. The whole run is `custom_training.py` with the trainer's own networks, evaluated
after every 1,000 env steps and watched from outside.

Each line is a process of its own and shows what it holds beyond what it held after warm-up. The
line "as it was" lets autograd remember the moves of the targets, as our learner did once: it shows
that the ruler sees a leak. Reads /proc, so it runs on Linux.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RECORD, PICTURE = ROOT / "benchmarks" / "results" / "memory.json", ROOT / "docs" / "memory.png"
ENV, ROWS, NETS, RATIO = "Pendulum-v1", 2_000, (16, 16), 20
WARM_UP, UPDATES, STRIDE = 10_000, 200_000, 5_000
RUN_WARM_UP, RUN_STEPS, ITERATION = 6_000, 20_000, 1_000
BAR_MB = 5.0
# Name -> (trainer, recipe, updates), each in a process of its own.
LINES = {
    "SAC": ("SAC", "vanilla", UPDATES),
    "TD3": ("TD3", "vanilla", UPDATES),
    "SAC nmer": ("SAC", "nmer", UPDATES),
    "SAC as it was": ("SAC", "vanilla", 20_000),
}
AS_IT_WAS, WHOLE_RUN = "SAC as it was", "whole run"


def resident_mb(process: int | str = "self") -> float:
    """Megabytes (1e6) of a process's pages in memory."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    (kibibytes,) = (line.split()[1] for line in lines if line.startswith("VmRSS:"))
    return int(kibibytes) * 1024 / 1e6


def updates_of(name: str) -> Iterator[tuple[int, float]]:
    """(updates after warm-up, resident MB) of one line, every `STRIDE` updates."""
    import torch

    from interreplay.algorithms.learner import OffPolicyLearner
    from interreplay.algorithms.sac import SACConfig
    from interreplay.algorithms.td3 import TD3Config
    from interreplay.launch.running.private_ray import private_ray

    torch.set_num_threads(1)
    trainer, recipe, updates = LINES[name]
    if name == AS_IT_WAS:
        recorded: Any = OffPolicyLearner.move_targets
        OffPolicyLearner.move_targets = recorded.__wrapped__  # type: ignore[method-assign]
    config = {"SAC": SACConfig, "TD3": TD3Config}[trainer]().environment(ENV).debugging(seed=0)
    config.hidden_sizes = NETS
    config.replay(
        recipe=recipe,
        ratio=RATIO,
        buffer_size=ROWS,
        learning_starts=ROWS,
        timesteps_per_iteration=STRIDE // RATIO,
    ).evaluate_episodes(interval=10**9, episodes=1)
    with private_ray(0):
        algorithm = config.build_algo()
        while algorithm.updates < WARM_UP:
            algorithm.train()
        first = algorithm.updates
        yield 0, resident_mb()
        while algorithm.updates < first + updates:
            algorithm.train()
            yield algorithm.updates - first, resident_mb()
        algorithm.stop()


def run_argv(folder: str) -> list[str]:
    """`custom_training.py` and its flags."""
    return [
        *("custom_training.py", "--trainer", "SAC", "--env", ENV, "--seed", "0"),
        # One iteration more than is counted: with the last report a run begins to end, and takes
        # memory once for its last checkpoint and its figure.
        *("--total_timesteps", str(RUN_WARM_UP + RUN_STEPS + ITERATION)),
        *("--timesteps_per_iteration", str(ITERATION), "--learning_starts", str(ROWS)),
        *("--buffer_size", str(ROWS), "--replay_ratio", "0.5", "--num_cpus", "1"),
        *("--evaluation_interval", "1", "--evaluation_num_episodes", "5"),
        *("--local_dir", folder),
    ]


def run_watched() -> Iterator[tuple[int, float]]:
    """(env steps after warm-up, resident MB) of a whole run, at every report it writes."""
    with tempfile.TemporaryDirectory() as folder:
        with open(Path(folder) / "log", "w") as log:
            run = subprocess.Popen(
                [sys.executable, *run_argv(folder)], cwd=ROOT, stdout=log, stderr=log
            )
        seen = 0
        try:
            while run.poll() is None:
                time.sleep(0.02)
                files = list(Path(folder).rglob("result.json"))
                reports = files[0].read_text().splitlines() if files else []
                if len(reports) > seen:
                    seen = len(reports)
                    steps = json.loads(reports[-1])["env_steps"] - RUN_WARM_UP
                    if 0 <= steps <= RUN_STEPS:
                        yield steps, resident_mb(run.pid)
        finally:
            if run.poll() is None:
                run.kill()
        if run.returncode:
            raise RuntimeError(f"the run failed:\n{(Path(folder) / 'log').read_text()}")


def measured(name: str) -> dict[str, Any]:
    """One line: its points, what it grew by, and what it was."""
    if name == WHOLE_RUN:
        what = "python " + " ".join(run_argv("FOLDER"))
        points = list(run_watched())
    else:
        trainer, recipe, updates = LINES[name]
        what = f"{trainer} {recipe}, ratio {RATIO}, nets {NETS}, buffer {ROWS}, {updates} updates"
        argv = [sys.executable, "-W", "ignore", "-m", "benchmarks.memory", "--line", name]
        run = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True)
        if run.returncode:
            raise RuntimeError(f"{name} failed:\n{run.stderr}")
        points = json.loads(run.stdout.splitlines()[-1])
    start = points[0][1]
    grown = [round(mb - start, 3) for _, mb in points]
    return {
        "what": what,
        "after_warm_up_mb": round(start, 1),
        "most_grown_mb": max(grown),
        "grown_mb": grown[-1],
        "points": [[x, y] for (x, _), y in zip(points, grown, strict=True)],
    }


def draw(lines: dict[str, Any], path: Path) -> None:
    """Growth against updates on the left, against the whole run's env steps on the right."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 3.8), dpi=150, layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    colours = ("#0072B2", "#E69F00", "#009E73", "#777777")
    for colour, name in zip(colours, LINES, strict=True):
        if name in lines:
            x, y = zip(*lines[name]["points"], strict=True)
            style = ":" if name == AS_IT_WAS else "-"
            label = f"{name}: {lines[name]['grown_mb']:+.1f} MB in {x[-1]:,}"
            left.plot(x, y, style, color=colour, lw=1.8, label=label)
    if WHOLE_RUN in lines:
        x, y = zip(*lines[WHOLE_RUN]["points"], strict=True)
        label = f"custom_training.py, SAC: {y[-1]:+.1f} MB in {x[-1]:,}"
        right.plot(x, y, color="#0072B2", lw=1.8, label=label)
    for axes, what in ((left, "updates"), (right, "env steps, evaluated every 1,000")):
        axes.axhline(BAR_MB, color="#D55E00", lw=1, ls="--", label=f"{BAR_MB:.0f} MB, the bar")
        axes.set_xlabel(f"{what}, after warm-up")
        axes.set_ylim(-2, 2 * BAR_MB)
        axes.locator_params(axis="x", nbins=5)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8, loc="upper right")
    left.set_ylabel("resident memory beyond warm-up, MB")
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    names = [*LINES, WHOLE_RUN]
    parser.add_argument("--only", nargs="*", choices=names, default=names)
    parser.add_argument("--line", choices=LINES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.line:
        points = list(updates_of(arguments.line))
        print(json.dumps(points))
        return 0
    lines: dict[str, Any] = json.loads(RECORD.read_text())["lines"] if RECORD.exists() else {}
    for name in arguments.only:
        lines[name] = measured(name)
        print(
            f"{name:<14} {lines[name]['after_warm_up_mb']:6.0f} MB after warm-up, "
            f"{lines[name]['grown_mb']:+7.2f} MB in {lines[name]['points'][-1][0]:,}",
            flush=True,
        )
        RECORD.parent.mkdir(exist_ok=True)
        content = {"command": "python -m benchmarks.memory", "env": ENV, "lines": lines}
        RECORD.write_text(json.dumps(content, indent=1) + "\n")
    draw(lines, PICTURE)
    flat = [name for name in lines if name != AS_IT_WAS]
    over = [name for name in flat if lines[name]["most_grown_mb"] >= BAR_MB]
    print(f"{', '.join(over)} grew by {BAR_MB:.0f} MB or more" if over else "all are flat")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
