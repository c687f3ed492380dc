"""How far synthetic transitions of HalfCheetah lie from what its simulator does there.

A stored transition comes out again to the float32 in which it is stored, so whatever differs at a
mixed (obs, action) is the recipe's error.
"""

from typing import Any

import numpy as np

from benchmarks.bier_rows import ENV, Lived, lived
from interreplay.launch.settings.resolution import resolve
from interreplay.launch.settings.translation import replay_settings
from replay_buffers import ReplayBuffer
from replay_buffers.storage import ACTIONS, NEXT_OBS, OBS, REWARDS, Doubles, Floats, Schema

OBS_DIM, ACTION_DIM = 17, 6
# HalfCheetah shows its joints' positions but for the first, then all velocities.
_POSITIONS = 8
_BATCH = 256
# Synthetic rows that the simulator judges, per recipe.
_JUDGED = 4096
_METHODS = ("gp", "linear", "nearest")


def filled(lived: Lived, recipe: str, **settings: Any) -> ReplayBuffer:
    """A buffer with what a run has lived."""
    buffer = ReplayBuffer.from_catalog(
        recipe,
        obs_dim=OBS_DIM,
        action_dim=ACTION_DIM,
        capacity=len(lived.rows),
        seed=0,
        **settings,
    )
    buffer.add(lived.rows, lived.episode, lived.step)
    return buffer


def fit_times(buffer: ReplayBuffer, times: int) -> None:
    """Fit bier's shared hyperparameters so often, as `times` intervals of a run would have."""
    surrogate, rng = buffer.augmentation._surrogate, np.random.default_rng(0)  # type: ignore[attr-defined]
    for number in range(times):
        surrogate.refit(buffer.storage.written + number * 10**6, rng)


def targets(rows: Floats) -> Doubles:
    """(reward, new_obs - obs) `[n, 18]` of packed rows."""
    schema, values = Schema(OBS_DIM, ACTION_DIM), rows.astype(np.float64)
    obs, new_obs = (values[:, schema.column(name)] for name in (OBS, NEXT_OBS))
    return np.concatenate([values[:, schema.column(REWARDS)], new_obs - obs], 1)


class Simulator:
    """What really follows (obs, action)."""

    def __init__(self) -> None:
        import gymnasium

        self._env: Any = gymnasium.make(ENV).unwrapped
        self._env.reset(seed=0)

    def __call__(self, obs: Floats, actions: Floats) -> Doubles:
        """(reward, new_obs - obs) `[n, 18]` at obs `[n, 17]` and actions `[n, 6]`."""
        found = []
        for state, action in zip(obs.astype(np.float64), actions, strict=True):
            positions = np.concatenate([[0.0], state[:_POSITIONS]])
            self._env.set_state(positions, state[_POSITIONS:])
            new_obs, reward, *_ = self._env.step(action)
            found.append(np.concatenate([[reward], new_obs - state]))
        return np.array(found)


def sampled(buffer: ReplayBuffer, count: int) -> tuple[Floats, Floats, Doubles]:
    """`count` synthetic rows: obs, actions and (reward, new_obs - obs)."""
    batches = [buffer.sample(_BATCH) for _ in range(-(-count // _BATCH))]
    obs, actions, rewards, new_obs = (
        np.concatenate([batch[name] for batch in batches])[:count]
        for name in (OBS, ACTIONS, REWARDS, NEXT_OBS)
    )
    change = new_obs.astype(np.float64) - obs
    return obs, actions, np.concatenate([rewards[:, None], change], 1)


def nearest(lived: Lived, obs: Floats, actions: Floats) -> Doubles:
    """(reward, new_obs - obs) `[n, 18]` of the stored row that is closest to each (obs, action)."""
    from scipy.spatial import cKDTree

    features = lived.rows[:, : OBS_DIM + ACTION_DIM]
    scale = features.std(0)
    _, index = cKDTree(features / scale).query(np.concatenate([obs, actions], 1) / scale)
    return targets(lived.rows)[index]


def errors(lived: Lived, predicted: Doubles, truth: Doubles) -> dict[str, float]:
    """Of predictions `[n, 18]`, in standard deviations of each target over the stored rows.

    `rmse` is over all rows and targets; `median` is the median over rows of a row's root mean
    square, which a few rows in the middle of an impact do not rule.
    """
    squares = ((predicted - truth) / targets(lived.rows).std(0)) ** 2
    return {
        "rmse": float(np.sqrt(squares.mean())),
        "median": float(np.median(np.sqrt(squares.mean(1)))),
    }


def accuracy(steps: int, neighbors: list[int], fits: int, use_ard: bool) -> dict[str, Any]:
    """Errors on a half-trained HalfCheetah: on neighbours left out, and by the simulator.

    Args:
        steps: of the run whose rows are used.
        neighbors: the k to try.
        fits: of bier's hyperparameters before it is judged, one after the other.
        use_ard: bier with a lengthscale for each dimension, which it does not have by default.
    """
    rows = lived(steps)
    simulator = Simulator()
    found: list[dict[str, Any]] = [
        {"recipe": "mixup", "mixtures": _judged(rows, filled(rows, "mixup"), simulator)}
    ]
    asked = {"buffer": "bier"} | ({"use_ard": True} if use_ard else {})
    recommended = replay_settings(resolve(asked))
    for k in neighbors:
        nmer = filled(rows, "nmer", kneighbors=k)
        obs, actions, _ = made = sampled(nmer, _JUDGED)
        truth = simulator(obs, actions)
        copied = nearest(rows, obs, actions)
        found += [
            {"recipe": f"nmer, k = {k}", "mixtures": errors(rows, made[2], truth)},
            {"recipe": f"nearest row, k = {k}", "mixtures": errors(rows, copied, truth)},
        ]
        bier = filled(rows, "bier", **recommended | {"kneighbors": k, "perform_holdout_eval": True})
        fit_times(bier, fits)
        judged = _judged(rows, bier, simulator)
        figures = {n: v for n, v in bier.stats().items() if n.startswith("holdout")}
        found.append({"recipe": f"bier, k = {k}", "mixtures": judged, "held out": figures})
    for row in found:
        held = row.get("held out")
        left_out = (
            ""
            if held is None
            else "; left out: "
            + ", ".join(f"{method} {held[f'holdout_{method}_rmse']:.3f}" for method in _METHODS)
        )
        at = row["mixtures"]
        print(f"{row['recipe']}: {at['rmse']:.3f} (median {at['median']:.3f}){left_out}")
    sizes = {"steps": steps, "fits": fits, "judged rows": _JUDGED}
    return {**sizes, "return_mean": rows.return_mean, "rows": found}


def _judged(rows: Lived, buffer: ReplayBuffer, simulator: Simulator) -> dict[str, float]:
    obs, actions, made = sampled(buffer, _JUDGED)
    return errors(rows, made, simulator(obs, actions))
