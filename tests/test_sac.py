"""The losses against values worked by hand on networks of one linear layer."""

import math

import numpy as np
import pytest
import torch
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch

import tests.fake_envs  # noqa: F401
from interreplay.algorithms.modules import Critics, SquashedGaussianPolicy
from interreplay.algorithms.sac import SACConfig

GAMMA, ALPHA = 0.9, 0.5


@pytest.fixture(autouse=True)
def _ray(ray_session):
    pass


@pytest.fixture
def learner():
    """obs of 2, actions of 1; one linear layer each; every weight set by hand."""
    config = SACConfig().environment("Chain-v0").debugging(seed=0).training(gamma=GAMMA)
    config.hidden_sizes = ()
    config.initial_alpha = ALPHA
    config.tau = 0.1
    built = config.build_learner(env=__import__("gymnasium").make("Chain-v0"))
    built.build()
    net = built.net
    with torch.no_grad():
        net.policy.net[0].weight.copy_(torch.tensor([[0.1, 0.2], [0.0, 0.1]]))
        net.policy.net[0].bias.copy_(torch.tensor([0.3, -0.5]))
        net.critics.weights[0].copy_(torch.tensor([[[1.0], [0.5], [2.0]], [[0.5], [1.0], [-1.0]]]))
        net.critics.biases[0].copy_(torch.tensor([[[0.1]], [[0.2]]]))
        net.target_critics.weights[0].copy_(
            torch.tensor([[[0.3], [0.2], [0.1]], [[0.2], [0.4], [0.3]]])
        )
        net.target_critics.biases[0].copy_(torch.tensor([[[0.0]], [[-0.1]]]))
    noise = torch.tensor([[0.4], [-1.2], [0.7]])
    built._noise = lambda like: noise[: len(like)]
    return built


def policy(obs, noise):
    """Action and log density by the definition, in float64: log N(u) - log(1 - tanh(u)^2)."""
    mean = 0.1 * obs[0] + 0.2 * obs[1] + 0.3
    log_std = 0.1 * obs[1] - 0.5
    u = mean + math.exp(log_std) * noise
    log_normal = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi)
    return math.tanh(u), log_normal - math.log(1 - math.tanh(u) ** 2)


ROWS = [  # obs, action, reward, new_obs, terminated, truncated, weight, noise
    ((1.0, -1.0), 0.5, 2.0, (0.5, 1.0), 0, 0, 1.0, 0.4),
    ((0.0, 2.0), -0.3, -1.0, (1.5, 0.0), 1, 0, 0.5, -1.2),  # terminal: no bootstrap
    ((0.7, 0.2), 0.9, 0.5, (-0.5, 0.3), 0, 1, 2.0, 0.7),  # time limit: bootstraps
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


def hand_errors(row):
    """(Q1 - y, Q2 - y) of one row."""
    obs, action, reward, new_obs, terminated, _, _, noise = row
    next_action, log_density = policy(new_obs, noise)
    target_1 = 0.3 * new_obs[0] + 0.2 * new_obs[1] + 0.1 * next_action
    target_2 = 0.2 * new_obs[0] + 0.4 * new_obs[1] + 0.3 * next_action - 0.1
    soft = min(target_1, target_2) - ALPHA * log_density
    y = reward + (0 if terminated else GAMMA * soft)
    q_1 = obs[0] + 0.5 * obs[1] + 2 * action + 0.1
    q_2 = 0.5 * obs[0] + obs[1] - action + 0.2
    return q_1 - y, q_2 - y


def test_critic_loss_and_td_errors(learner):
    loss, td_errors = learner.critic_loss(BATCH, torch.tensor(ALPHA))
    errors = [hand_errors(row) for row in ROWS]
    expected = (
        sum(row[6] * 0.5 * (a**2 + b**2) for row, (a, b) in zip(ROWS, errors, strict=True)) / 3
    )
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(td_errors, [(abs(a) + abs(b)) / 2 for a, b in errors], rtol=1e-5)


def test_only_a_true_terminal_stops_the_bootstrap(learner):
    def target_of(terminated, truncated):
        batch = {
            **BATCH,
            "terminateds": torch.full((3,), terminated),
            "truncateds": torch.full((3,), truncated),
        }
        _, td = learner.critic_loss(
            {**batch, "rewards": torch.full((3,), 1e4)}, torch.tensor(ALPHA)
        )
        return td

    torch.testing.assert_close(target_of(0.0, 1.0), target_of(0.0, 0.0))
    assert (target_of(1.0, 0.0) != target_of(0.0, 0.0)).all()


def test_huber_loss_is_linear_in_large_errors(learner):
    learner.config.huber_loss = True
    loss, _ = learner.critic_loss(BATCH, torch.tensor(ALPHA))

    def huber(e):
        return 0.5 * e**2 if abs(e) <= 1 else abs(e) - 0.5

    errors = [hand_errors(row) for row in ROWS]
    assert any(abs(e) > 1 for pair in errors for e in pair)
    assert any(abs(e) < 1 for pair in errors for e in pair)
    expected = (
        sum(row[6] * (huber(a) + huber(b)) for row, (a, b) in zip(ROWS, errors, strict=True)) / 3
    )
    assert loss.item() == pytest.approx(expected, rel=1e-5)


def test_actor_loss(learner):
    loss, log_density = learner.actor_loss(BATCH, torch.tensor(ALPHA))
    terms, logs = [], []
    for obs, *_, noise in ROWS:
        action, log_pi = policy(obs, noise)
        q_1 = obs[0] + 0.5 * obs[1] + 2 * action + 0.1
        q_2 = 0.5 * obs[0] + obs[1] - action + 0.2
        terms.append(ALPHA * log_pi - min(q_1, q_2))
        logs.append(log_pi)
    assert loss.item() == pytest.approx(sum(terms) / 3, rel=1e-5)
    np.testing.assert_allclose(log_density, logs, rtol=1e-5)


def test_alpha_gradient_pushes_the_entropy_towards_its_target(learner):
    log_density = torch.tensor([0.5, 2.0])
    # d/d log alpha of -log(alpha) * mean(log pi + target), target entropy -|A| = -1.
    gradient = learner.alpha_gradient(log_density)
    assert gradient.item() == pytest.approx(-0.25)  # entropy below its target: alpha grows


def test_an_update_moves_each_network_by_its_own_loss_and_targets_by_tau(learner):
    net = learner.net
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    learner.update(MultiAgentBatch({DEFAULT_MODULE_ID: SampleBatch(BATCH)}, 3))
    after = dict(net.named_parameters())
    for name, old in before.items():
        if name.startswith("target_"):
            source = after[name.removeprefix("target_")]
            torch.testing.assert_close(after[name], old + 0.1 * (source - old))
        else:
            assert (after[name] != old).any(), name
    # Adam's first step is lr * sign(gradient): d critic_loss / d bias_1 = mean(w * (Q1 - y)).
    gradient = sum(row[6] * hand_errors(row)[0] for row in ROWS) / 3
    moved = (after["critics.biases.0"] - before["critics.biases.0"])[0].item()
    assert moved == pytest.approx(-3e-4 * math.copysign(1, gradient), rel=1e-3)


def test_the_actors_step_leaves_the_critics_gradients_alone(learner):
    critic_loss, _ = learner.critic_loss(BATCH, torch.tensor(ALPHA))
    learner._descend("critic", critic_loss)
    kept = [p.grad.clone() for p in learner.net.critics.parameters()]
    actor_loss, _ = learner.actor_loss(BATCH, torch.tensor(ALPHA))
    learner._descend("actor", actor_loss)
    for parameter, gradient in zip(learner.net.critics.parameters(), kept, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=0, atol=0)


def test_minibatches_are_walked_in_order(learner):
    sizes = []
    learner.update_minibatch = lambda batch: (sizes.append(len(batch["obs"])), batch["rewards"])[1]
    out = learner.update(
        MultiAgentBatch({DEFAULT_MODULE_ID: SampleBatch(BATCH)}, 3), minibatch_size=2
    )
    assert sizes == [2, 1]
    np.testing.assert_array_equal(out["td_errors"], BATCH["rewards"])


def test_critics_are_separate_networks_in_one_product():
    torch.manual_seed(0)
    critics = Critics(3, (5, 4), count=2)
    obs, actions = torch.randn(7, 2), torch.randn(7, 1)
    values = critics(obs, actions)
    for index in range(2):
        x = torch.cat([obs, actions], 1)
        for layer in range(3):
            x = x @ critics.weights[layer][index] + critics.biases[layer][index]
            x = x.relu() if layer < 2 else x
        torch.testing.assert_close(values[index], x[:, 0])
    assert (values[0] != values[1]).all()


def test_log_density_is_that_of_the_squashed_normal_and_finite_at_saturation():
    torch.manual_seed(0)
    policy_ = SquashedGaussianPolicy(2, 3, (8,))
    obs, noise = torch.randn(50, 2), torch.randn(50, 3)
    actions, log_density = policy_.sample(obs, noise)
    mean, log_std = policy_(obs)
    reference = torch.distributions.TransformedDistribution(
        torch.distributions.Normal(mean.double(), log_std.double().exp()),
        torch.distributions.transforms.TanhTransform(cache_size=1),
    )
    u = mean.double() + log_std.double().exp() * noise.double()
    expected = reference.log_prob(torch.tanh(u)).sum(-1)
    torch.testing.assert_close(log_density.double(), expected, rtol=1e-4, atol=1e-4)

    policy_.net[-1].bias.data[:3] = 50.0
    actions, log_density = policy_.sample(obs, noise)
    assert (actions == 1).all()
    assert torch.isfinite(log_density).all()
    log_density.sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in policy_.parameters())
