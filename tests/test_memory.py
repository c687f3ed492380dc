"""What a run holds doesn't grow with its updates."""

import ctypes

import gymnasium as gym
import pytest
import torch

from interreplay.algorithms.ddpg import DDPGConfig
from interreplay.algorithms.sac import SACConfig
from interreplay.algorithms.td3 import TD3Config
from tests.test_backprop import random_batch

TRAINERS = [SACConfig, TD3Config, DDPGConfig]
# Target moves that autograd remembers take 2 to 4 KB an update: 4 to 9 MB in as many.
UPDATES, MOST = 2000, 2_000_000


def small(config, recipe="vanilla"):
    built = config().environment("Pendulum-v1").debugging(seed=0)
    built.hidden_sizes, built.train_batch_size_per_learner = (8,), 16
    built.replay(recipe=recipe, learning_starts=300, buffer_size=300, timesteps_per_iteration=300)
    return built.evaluate_episodes(interval=1000, episodes=1)


class MallocInfo(ctypes.Structure):
    """glibc's `struct mallinfo2` (mallinfo(3))."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


def in_use():
    """Bytes that this process has allocated and not freed, Python's and torch's.

    Resident memory would not do here: what other tests have freed is taken again first.
    """
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = MallocInfo
    found = mallinfo()
    return found.uordblks + found.hblkhd


@pytest.mark.parametrize("written", [True, False])
@pytest.mark.parametrize("config", TRAINERS)
def test_no_network_remembers_the_updates_it_had(ray_session, config, written):
    learner = small(config).build_learner(env=gym.make("Pendulum-v1"))
    learner.build()
    if not written:
        learner._passes_of = [None]
    batch = random_batch()
    batch |= {name: batch[name].repeat(1, 2)[:, :3] for name in ("obs", "new_obs")}
    for update in range(4):
        learner.update_minibatch(batch)
        learner._updates_lifetime = update + 1
        learner.move_targets(1)  # as env steps do
    for name, parameter in learner.net.named_parameters():
        assert parameter.grad_fn is None, name
    for target, _ in learner.targets():
        assert not any(parameter.requires_grad for parameter in target.parameters())


@pytest.mark.parametrize(
    ("config", "recipe"),
    [*((config, "vanilla") for config in TRAINERS), (SACConfig, "nmer"), (SACConfig, "ct")],
)
def test_memory_in_use_does_not_grow_with_updates(ray_session, config, recipe):
    algorithm = small(config, recipe).build_algo()
    try:
        algorithm.train()
        algorithm._update(300)  # everything that is made once is there
        before = in_use()
        algorithm._update(UPDATES)
        assert in_use() - before < MOST
    finally:
        algorithm.stop()


def test_memory_in_use_counts_what_is_held():
    before = in_use()
    held = [torch.empty(MOST // 400) for _ in range(200)]  # floats of 4 bytes
    assert in_use() - before >= 2 * MOST
    del held
    assert in_use() - before < MOST
