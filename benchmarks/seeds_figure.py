"""Draw the evaluation curves of several seeds of one recipe into one picture.

python -m benchmarks.seeds_figure results/interreplay/InvertedPendulum-v5/SAC-nmer docs/x.png
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from interreplay.results import RunFolder

# Okabe and Ito's palette.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00")


def draw(runs: list[RunFolder], path: Path) -> None:
    """One line a seed, and on the figure the mean of each one's last two evaluations."""
    figure = Figure(figsize=(6.4, 3.6), dpi=150, layout="constrained")
    axes = figure.subplots()
    for colour, run in zip(COLOURS, runs, strict=False):
        reports = [r for r in run.reports() if r["evaluation_return_mean"] is not None]
        steps = [r["env_steps"] for r in reports]
        means = np.array([r["evaluation_return_mean"] for r in reports])
        label = f"{run.path.name}: last two evaluations {means[-2:].mean():.1f}"
        axes.plot(steps, means, color=colour, lw=1.5, marker="o", ms=2.5, label=label)
        print(f"{run.path}: {label}, {reports[-1]['wall_s']:.0f} s")
    axes.set_xlabel("environment steps")
    axes.set_ylabel("return, mean of an evaluation")
    trainer, env = runs[0].path.parent.name, runs[0].path.parent.parent.name
    axes.set_title(f"{trainer} on {env}", fontsize=10)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="upper left")
    figure.savefig(path)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m benchmarks.seeds_figure RECIPE_FOLDER PICTURE.png")
    folders = sorted(p for p in Path(sys.argv[1]).glob("seed*") if p.name[4:].isdigit())
    draw([RunFolder(f) for f in folders if (f / "result.json").exists()], Path(sys.argv[2]))
