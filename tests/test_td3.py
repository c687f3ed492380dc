"""TD3's and DDPG's losses, targets and delays against values worked by hand."""

import math

import gymnasium as gym
import numpy as np
import pytest
import torch
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch

import tests.fake_envs  # noqa: F401
from interreplay.algorithms.ddpg import DDPGConfig
from interreplay.algorithms.modules import OrnsteinUhlenbeck
from interreplay.algorithms.td3 import TD3Config

GAMMA = 0.9


@pytest.fixture(autouse=True)
def _ray(ray_session):
    pass


def learner_of(config):
    """obs of 2, actions of 1; one linear layer each; every weight set by hand."""
    config = config.environment("Chain-v0").debugging(seed=0).training(gamma=GAMMA)
    config.hidden_sizes = ()
    config.tau = 0.1
    built = config.build_learner(env=gym.make("Chain-v0"))
    built.build()
    net, count = built.net, config.critic_count
    with torch.no_grad():
        net.policy.net[0].weight.copy_(torch.tensor([[0.1, 0.2]]))
        net.policy.net[0].bias.copy_(torch.tensor([0.3]))
        net.target_policy.net[0].weight.copy_(torch.tensor([[0.3, -0.4]]))
        net.target_policy.net[0].bias.copy_(torch.tensor([0.5]))
        net.critics.weights[0].copy_(
            torch.tensor([[[1.0], [0.5], [2.0]], [[0.5], [1.0], [-1.0]]])[:count]
        )
        net.critics.biases[0].copy_(torch.tensor([[[0.1]], [[0.2]]])[:count])
        net.target_critics.weights[0].copy_(
            torch.tensor([[[0.3], [0.2], [0.1]], [[0.2], [0.4], [0.3]]])[:count]
        )
        net.target_critics.biases[0].copy_(torch.tensor([[[0.0]], [[-0.1]]])[:count])
    noise = torch.tensor([[1.0], [-9.0], [3.0]])
    built._noise = lambda like: noise[: len(like)].clone()
    return built


ROWS = [  # obs, action, reward, new_obs, terminated, truncated, weight, n, noise
    ((1.0, -1.0), 0.5, 2.0, (0.5, 1.0), 0, 0, 1.0, 1, 1.0),
    ((0.0, 2.0), -0.3, -1.0, (1.5, 0.0), 1, 0, 0.5, 2, -9.0),  # terminal: no bootstrap
    ((0.7, 0.2), 0.9, 0.5, (-0.5, 0.3), 0, 1, 2.0, 3, 3.0),  # time limit: bootstraps
]
BATCH = {
    "obs": torch.tensor([row[0] for row in ROWS]),
    "actions": torch.tensor([[row[1]] for row in ROWS]),
    "rewards": torch.tensor([row[2] for row in ROWS]),
    "new_obs": torch.tensor([row[3] for row in ROWS]),
    "terminateds": torch.tensor([float(row[4]) for row in ROWS]),
    "truncateds": torch.tensor([float(row[5]) for row in ROWS]),
    "weights": torch.tensor([row[6] for row in ROWS]),
}
STEPS = torch.tensor([float(row[7]) for row in ROWS])


def hand_errors(row, twin, smoothed, n=None):
    """Q - y of each critic for one row."""
    obs, action, reward, new_obs, terminated, _, _, _, noise = row
    target_action = math.tanh(0.3 * new_obs[0] - 0.4 * new_obs[1] + 0.5)
    if smoothed:
        target_action = max(-1.0, min(1.0, target_action + max(-0.5, min(0.5, 0.2 * noise))))
    values = [0.3 * new_obs[0] + 0.2 * new_obs[1] + 0.1 * target_action]
    if twin:
        values.append(0.2 * new_obs[0] + 0.4 * new_obs[1] + 0.3 * target_action - 0.1)
    y = reward + (0 if terminated else GAMMA ** (n or 1) * min(values))
    q = [obs[0] + 0.5 * obs[1] + 2 * action + 0.1, 0.5 * obs[0] + obs[1] - action + 0.2]
    return [value - y for value in q[: 2 if twin else 1]]


@pytest.mark.parametrize(("config", "twin"), [(TD3Config, True), (DDPGConfig, False)])
@pytest.mark.parametrize("n_step", [False, True])
def test_critic_loss(config, twin, n_step):
    learner = learner_of(config())
    batch = {**BATCH, "n_step": STEPS} if n_step else BATCH
    loss, td_errors = learner.critic_loss(batch)
    errors = [hand_errors(row, twin, smoothed=twin, n=row[7] if n_step else None) for row in ROWS]
    expected = (
        sum(row[6] * 0.5 * sum(e**2 for e in es) for row, es in zip(ROWS, errors, strict=True)) / 3
    )
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(td_errors, [np.mean(np.abs(es)) for es in errors], rtol=1e-5)


def test_smoothing_noise_is_clipped_and_the_action_stays_in_the_box():
    learner = learner_of(TD3Config())
    reached = []
    inner = learner.net.target_critics.forward
    learner.net.target_critics.forward = lambda obs, actions: (
        reached.append(actions),
        inner(obs, actions),
    )[1]
    learner.critic_loss(BATCH)
    plain = learner.net.target_policy(BATCH["new_obs"])
    moved = (reached[0] - plain)[:, 0]
    assert moved[0].item() == pytest.approx(0.2)
    assert moved[1].item() == pytest.approx(-0.5)
    assert reached[0].max() <= 1


def test_views_of_a_row_are_averaged_before_the_error_is_squared():
    config = TD3Config().replay(recipe="s4rl", s4rl_num_views=2)
    learner = learner_of(config)
    values = torch.tensor([[1.0, 2.0, 5.0, 4.0]])  # one critic, two rows, contiguous by view
    target = torch.tensor([0.0, 1.0, 2.0, 3.0])
    weights = torch.tensor([1.0, 3.0, 1.0, 3.0])
    loss, td_errors, gradient = learner.critic_regression(values, target, weights)
    # Means: values 3 and 3, targets 1 and 2: errors 2 and 1.
    assert td_errors.tolist() == [2.0, 1.0]
    assert loss.item() == pytest.approx((1 * 0.5 * 4 + 3 * 0.5 * 1) / 2)
    # Each row's weight times its error, over two rows and two views.
    assert gradient.tolist() == [[0.5, 0.75, 0.5, 0.75]]


def test_the_gradient_lent_to_views_is_that_of_q_at_the_policys_action():
    learner = learner_of(TD3Config())
    learner.net.critics.biases[0].data[1] = 50.0  # the smaller Q is the first critic's
    obs = np.float32([[0.4, -0.2]])
    gradient = learner.obs_gradient(obs)
    slope = 1 - math.tanh(0.1 * 0.4 + 0.2 * -0.2 + 0.3) ** 2
    expected = [[1.0 + 2 * slope * 0.1, 0.5 + 2 * slope * 0.2]]
    np.testing.assert_allclose(gradient, expected, rtol=1e-5)


def test_actor_loss_is_the_first_critics_value():
    learner = learner_of(TD3Config())
    expected = 0.0
    for obs, *_ in ROWS:
        action = math.tanh(0.1 * obs[0] + 0.2 * obs[1] + 0.3)
        expected -= (obs[0] + 0.5 * obs[1] + 2 * action + 0.1) / 3
    assert learner.actor_loss(BATCH).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("config", "moves"), [(TD3Config, [False, True, False, True]), (DDPGConfig, [True] * 4)]
)
def test_policy_and_targets_move_every_policy_delay_updates(config, moves):
    learner = learner_of(config())
    net = learner.net
    batch = MultiAgentBatch({DEFAULT_MODULE_ID: SampleBatch(BATCH)}, 3)
    for moved in moves:
        before = {name: p.detach().clone() for name, p in net.named_parameters()}
        learner.update(batch)
        for name, p in net.named_parameters():
            if name.startswith("critics"):
                assert (p != before[name]).any()
            elif name.startswith("target"):
                source = dict(net.named_parameters())[name.removeprefix("target_")]
                expected = before[name] + 0.1 * (source - before[name]) if moved else before[name]
                torch.testing.assert_close(p, expected)
            else:
                assert (p != before[name]).any() == moved
    report = learner.report()
    assert set(report) == {"critic_loss", "td_error", "actor_loss"}


def test_the_delay_goes_on_after_a_restore():
    learner, copy = learner_of(TD3Config()), learner_of(TD3Config())
    batch = MultiAgentBatch({DEFAULT_MODULE_ID: SampleBatch(BATCH)}, 3)
    learner.update(batch)
    copy.set_state(learner.get_state())
    before = copy.net.policy.net[0].weight.clone()
    copy.update(batch)  # the second update: the policy's turn
    assert (copy.net.policy.net[0].weight != before).any()


def test_ou_noise_follows_its_recurrence_and_starts_at_0():
    process = OrnsteinUhlenbeck(0.15, 0.2)
    first = process(torch.tensor([[1.0], [2.0]]), torch.tensor([True, True])).clone()
    torch.testing.assert_close(first, torch.tensor([[0.2], [0.4]]))
    second = process(torch.tensor([[-1.0], [1.0]]), torch.tensor([False, True])).clone()
    torch.testing.assert_close(second, torch.tensor([[0.85 * 0.2 - 0.2], [0.2]]))


def explored(config, episode_starts, steps=4000):
    config = config.environment("Chain-v0").debugging(seed=0).replay(learning_starts=0)
    config.hidden_sizes = (4,)
    module = config.get_rl_module_spec(env=gym.make("Chain-v0"), inference_only=True).build()
    module.policy.net[-1].weight.data[:] = 0
    module.policy.net[-1].bias.data[:] = 0.1
    generator = torch.Generator().manual_seed(0)
    obs = torch.zeros(1, 2)
    actions = [
        module.forward_exploration(
            {"obs": obs}, t=1, generator=generator, starts=torch.tensor([i in episode_starts])
        )["actions"].item()
        for i in range(steps)
    ]
    assert max(np.abs(actions)) <= 1
    return np.array(actions) - math.tanh(0.1)


def test_exploration_has_the_deviation_and_memory_it_should():
    gaussian = explored(TD3Config(), {0})
    assert gaussian.std() == pytest.approx(0.1, rel=0.05)
    assert abs(np.corrcoef(gaussian[1:], gaussian[:-1])[0, 1]) < 0.05
    drifting = explored(DDPGConfig(), {0})
    # Stationary: variance sigma^2 / (1 - (1 - theta)^2), correlation 1 - theta from step to step.
    assert drifting.std() == pytest.approx(0.2 / math.sqrt(1 - 0.85**2), rel=0.15)
    assert np.corrcoef(drifting[1:], drifting[:-1])[0, 1] == pytest.approx(0.85, abs=0.03)
    restarted = explored(DDPGConfig(), set(range(4000)))
    assert restarted.std() == pytest.approx(0.2, rel=0.05)
