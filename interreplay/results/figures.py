"""Figures of runs. Drawn without a display and without pyplot's global state."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from interreplay.results.run_folder import RunFolder

# Okabe and Ito's palette: told apart by colour-blind readers and in grey.
_BLUE, _ORANGE, _GREY = "#0072B2", "#E69F00", "#777777"


def learning_curve(folder: RunFolder) -> Path:
    """Draw one run's returns against env steps into its folder; returns the PNG's path.

    The line is the mean over an evaluation's episodes, the band one standard deviation over them
    (of episodes, not of the mean), the thin line the exploring policy's own episodes.

    Raises:
        ValueError: the run has not reported an evaluation yet.
    """
    reports = folder.reports()
    settings = folder._read(folder.config)
    evaluated = [r for r in reports if r.get("evaluation_return_mean") is not None]
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
    axes.set_xlabel("environment steps")
    axes.set_ylabel("episode return")
    axes.set_title(_title(settings, evaluated[-1]), fontsize=10)
    axes.set_xlim(0, max(steps[-1], 1))
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(folder.figure)
    return folder.figure


def _training_return(report: dict[str, Any]) -> float | None:
    value = report.get("env_runners", {}).get("episode_return_mean")
    return None if value is None else float(value)


def _title(settings: dict[str, Any], last: dict[str, Any]) -> str:
    recipe = settings.get("buffer", "?")
    if settings.get("prioritized_replay") and recipe != "per":
        recipe += " + per"
    episodes = settings.get("evaluation_num_episodes", 1)
    return (
        f"{settings.get('trainer')} with {recipe} on {settings.get('env')}, "
        f"seed {settings.get('seed')}\n"
        f"band: one standard deviation over {episodes} evaluation episode(s); "
        f"last mean {last['evaluation_return_mean']:.1f}"
    )
