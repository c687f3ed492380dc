"""Figures of runs. Drawn without a display and without pyplot's global state."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from interreplay.results.run_folder import RunFolder

# Okabe and Ito's palette: told apart by colour-blind readers and in grey.
_BLUE, _ORANGE, _GREY = "#0072B2", "#E69F00", "#777777"
_PALETTE = (_BLUE, _ORANGE, "#009E73", "#CC79A7", "#D55E00", "#56B4E9")


def learning_curve(folder: RunFolder) -> Path:
    """Draw one run's returns against env steps into its folder; returns the PNG's path.

    The line is the mean over an evaluation's episodes, the band one standard deviation over them
    (of episodes, not of the mean), the thin line the exploring policy's own episodes.

    Raises:
        ValueError: the run has not reported an evaluation yet.
    """
    reports = folder.reports()
    settings = folder._read(folder.config)
    evaluated = folder.evaluations()
    if not evaluated:
        raise ValueError(f"{folder.path} holds no evaluation yet")
    steps = np.array([r["env_steps"] for r in evaluated], float)
    mean = np.array([r["evaluation_return_mean"] for r in evaluated])
    std = np.array([r["evaluation_return_std"] for r in evaluated])

    figure = Figure(figsize=(6.4, 4.0), dpi=150, layout="constrained")
    axes = figure.subplots()
    training = [(r["env_steps"], _training_return(r)) for r in reports]
    training = [(x, y) for x, y in training if y is not None]
    if training:
        x, y = zip(*training, strict=True)
        axes.plot(x, y, color=_ORANGE, lw=1, label="training episodes (exploring)")
    axes.plot(steps, mean, color=_BLUE, lw=2, marker="o", ms=3, label="evaluation (deterministic)")
    axes.fill_between(steps, mean - std, mean + std, color=_BLUE, alpha=0.2, lw=0)
    warm_up = settings.get("learning_starts", 0)
    if 0 < warm_up < steps[-1]:
        axes.axvline(warm_up, color=_GREY, lw=1, ls=":", label="first update")
    axes.set_xlim(0, max(steps[-1], 1))
    _finish(axes, "episode return", _title(settings, evaluated[-1]))
    figure.savefig(folder.figure)
    return folder.figure


def _training_return(report: dict[str, Any]) -> float | None:
    value = report.get("env_runners", {}).get("episode_return_mean")
    return None if value is None else float(value)


def _title(settings: dict[str, Any], last: dict[str, Any]) -> str:
    recipe = settings.get("buffer", "?")
    if settings.get("prioritized_replay") and recipe != "per":
        recipe += " + per"
    learner = f"{settings.get('trainer')} with {recipe}"
    if settings.get("trainer") == "RLlib":
        learner = f"RLlib's own {settings.get('run')}"
    episodes = settings.get("evaluation_num_episodes", 1)
    return (
        f"{learner} on {settings.get('env')}, "
        f"seed {settings.get('seed')}\n"
        f"band: one standard deviation over {episodes} evaluation episode(s); "
        f"last mean {last['evaluation_return_mean']:.1f}"
    )


def seeds_curve(group: Path, path: Path | None = None) -> Path | None:
    """Draw the evaluations of all `seed*` runs in `group`, a line each, and their mean.

    The mean is drawn where every run was evaluated; runs that are not finished end early and say
    so. The legend gives the mean of each run's last two evaluations.

    Args:
        group: a folder `<trainer>-<recipe>`.
        path: of the PNG; by default `seeds.png` in the group.

    Returns:
        The picture's path, or None when no run has been evaluated yet.
    """
    curves = {}
    for run in sorted(
        (RunFolder(p) for p in group.glob("seed*") if p.name[4:].isdigit()),
        key=lambda run: int(run.path.name[4:]),
    ):
        points = [(r["env_steps"], r["evaluation_return_mean"]) for r in run.evaluations()]
        if points:
            unfinished = "" if run.state == "finished" else f" ({run.state})"
            curves[run.path.name + unfinished] = points
    if not curves:
        return None
    figure = Figure(figsize=(6.4, 3.6), dpi=150, layout="constrained")
    axes = figure.subplots()
    for colour, (name, points) in zip(itertools.cycle(_PALETTE), curves.items(), strict=False):
        last = np.mean([y for _, y in points[-2:]])
        x, y = zip(*points, strict=True)
        label = f"{name}: last two evaluations {last:.1f}"
        axes.plot(x, y, color=colour, lw=1.2, marker="o", ms=2.5, label=label)
    shared = sorted(set.intersection(*(set(dict(points)) for points in curves.values())))
    if len(curves) > 1 and shared:
        mean = [np.mean([dict(points)[x] for points in curves.values()]) for x in shared]
        axes.plot(shared, mean, color="black", lw=2.2, label=f"mean of n = {len(curves)}")
    _finish(axes, "return, mean of an evaluation", f"{group.name} on {group.parent.name}")
    path = group / "seeds.png" if path is None else path
    figure.savefig(path)
    return path


def _finish(axes: Axes, ylabel: str, title: str) -> None:
    axes.set_xlabel("environment steps")
    axes.set_ylabel(ylabel)
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
