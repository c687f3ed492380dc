"""One picture of the families: what their tasks are, and what their worlds look like."""

import os
from typing import Any

import numpy as np

from interreplay.environments.families.rand_params import BASES
from interreplay.environments.families.registry import find_family
from interreplay.errors import UsageError

# Okabe and Ito's blue and orange, as in every figure of the project.
_TRAIN, _HELD_OUT = "#0072B2", "#E69F00"
_WORLDS = (
    ("sparse-point-robot", 25, 12),
    ("point-robot-wind", 3, 20),
    ("cheetah-vel", 0, 15),
    ("ant-dir", 0, 15),
    ("humanoid-dir", 0, 8),
    ("walker-rand-params", 0, 5),
    ("hopper-rand-params", 0, 8),
)


def draw(path: str | os.PathLike[str], seed: int = 0) -> None:
    """Write the picture, a PNG. MuJoCo's worlds need an OpenGL (`MUJOCO_GL=egl` without a screen).

    Raises:
        UsageError: MuJoCo can't draw here, or the file can't be written.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14, 5.9), dpi=110, layout="constrained")
    parts: Any = figure.subfigures(2, 1, height_ratios=(1.35, 1))
    above, below = parts
    panels = above.subplots(1, 5, gridspec_kw={"width_ratios": (1.5, 1, 1, 1, 1.3)})
    _goals(panels[0], "sparse-point-robot", "goal", seed)
    _goals(panels[1], "point-robot", "goal", seed)
    _goals(panels[2], "point-robot-wind", "wind", seed)
    _goals(panels[3], "ant-goal", "goal", seed)
    _multipliers(panels[4], seed)
    handles, labels = panels[0].get_legend_handles_labels()
    above.legend(handles, labels, loc="outside upper left", ncols=2, frameon=False)
    for axes, (name, index, steps) in zip(below.subplots(1, len(_WORLDS)), _WORLDS, strict=True):
        axes.imshow(world(name, index, steps, seed))
        axes.set_title(name, fontsize=9)
        axes.set_axis_off()
    try:
        figure.savefig(path, format="png")
    except OSError as error:
        raise UsageError(
            f"{path} can't be written: {error.strerror}; choose another folder"
        ) from error


def world(name: str, index: int, steps: int, seed: int = 0) -> Any:
    """`[height, width, 3]` uint8: a task of a family after some steps towards its goal."""
    family = find_family(name)
    env = family.make_env(family.tasks(seed=seed)[index], "rgb_array")
    env.reset(seed=seed)
    env.action_space.seed(seed)
    for _ in range(steps):
        place = getattr(env.unwrapped, "position", None)
        if place is None:
            action = env.action_space.sample()
        else:
            action = np.clip(env.unwrapped.goal - place, -0.1, 0.1)  # type: ignore[attr-defined]
        env.step(action)
    pixels: Any = env.render()
    env.close()
    return pixels


def _goals(axes: Any, name: str, parameter: str, seed: int) -> None:
    """The tasks of a family whose tasks are places or shifts in the plane."""
    family = find_family(name)
    places = np.array([task.parameters[parameter] for task in family.tasks(seed=seed)])
    parts = family.split(seed=seed)
    for indices, colour, label in zip(
        parts, (_TRAIN, _HELD_OUT), ("training tasks", "held out"), strict=True
    ):
        axes.scatter(*places[indices].T, s=14, color=colour, label=label, zorder=2)
    if family.reported == "sparse":
        from matplotlib.patches import Circle

        for k in (0, len(places) // 3, len(places) - 1):
            axes.add_patch(Circle(places[k], -family.threshold, color="#777777", alpha=0.2, lw=0))
        axes.plot(0, 0, "+", color="black", ms=9)
        axes.annotate("start", (0, 0), (0, 6), textcoords="offset points", ha="center", fontsize=8)
    axes.set_title(f"{name}: {parameter}", fontsize=10)
    axes.set_aspect("equal")
    axes.margins(0.12)
    axes.locator_params(nbins=4)
    axes.tick_params(labelsize=8)


def _multipliers(axes: Any, seed: int) -> None:
    """How the multipliers of the walkers' 65 numbers are distributed."""
    tasks = find_family("walker-rand-params").tasks(seed=seed)
    values = [
        np.log(np.concatenate([np.ravel(task.parameters[name]) for task in tasks]))
        for name in BASES
    ]
    axes.violinplot(values, showextrema=False, widths=0.8)
    axes.set_xticks(range(1, len(BASES) + 1), [n.replace("_", "\n") for n in BASES], fontsize=8)
    ticks = (0.3, 0.5, 1, 2, 3)
    axes.set_yticks(np.log(ticks), [f"{tick:g}" for tick in ticks], fontsize=8)
    axes.axhline(0, color="#777777", lw=0.8, zorder=0)
    axes.set_title("walker-rand-params: multipliers", fontsize=10)
