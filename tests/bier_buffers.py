"""Small buffers of the bier recipe, with dynamics that a line misses."""

import numpy as np

from replay_buffers import ReplayBuffer

OBS, ACTION = 3, 2


def transitions(schema, count, rng, terminals=0.0, scale=1.0):
    """Smooth dynamics, curved enough that a line misses them."""
    obs, actions = rng.normal(size=(count, OBS)), rng.uniform(-1, 1, (count, ACTION))
    push = np.concatenate([actions, -actions[:, :1]], axis=1)
    new_obs = obs + 0.3 * np.sin(2 * obs) + 0.2 * push
    rewards = scale * (np.cos(obs[:, 0] * 2) + (actions**2).sum(1))
    return schema.pack(
        obs, actions, rewards, new_obs, rng.random(count) < terminals, np.zeros(count)
    )


def filled(count=120, k=10, capacity=200, seed=0, prioritized=False, data=None, **settings):
    buffer = ReplayBuffer.from_catalog(
        "bier",
        obs_dim=OBS,
        action_dim=ACTION,
        capacity=capacity,
        seed=seed,
        prioritized=prioritized,
        kneighbors=k,
        **settings,
    )
    add(buffer, count, **(data or {}))
    return buffer


def add(buffer, count, seed=7, **data):
    rng = np.random.default_rng([seed, buffer.storage.written])
    rows = transitions(buffer.schema, count, rng, **data)
    numbers = buffer.storage.written + np.arange(count)
    buffer.add(rows, numbers // 20, numbers % 20)


def outcomes(buffer, count=64):
    batch = buffer.sample(count)
    return np.concatenate([batch["rewards"][:, None], batch["new_obs"]], axis=1)


FAST = {"est_lengthscales": True, "kernel": "rbf"}  # nothing to fit: settings come out exactly
# One set of hyperparameters, fitted.
SHARED = {"kernel": "rbf", "gpytorch": True, "global_hyperparams": True}
