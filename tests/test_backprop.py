"""The written-out passes and optimizer against autograd's and torch's own."""

import copy

import gymnasium as gym
import pytest
import torch
from ray.rllib.core import DEFAULT_MODULE_ID

import tests.fake_envs  # noqa: F401
from interreplay.algorithms.backprop import layers_of
from interreplay.algorithms.ddpg import DDPGConfig
from interreplay.algorithms.modules import LOG_STD_MAX, MLP, Critics
from interreplay.algorithms.sac import SACConfig
from interreplay.algorithms.td3 import TD3Config
from replay_buffers.backprop import Backprop
from replay_buffers.flat_adam import FlatAdam


def differentiated(net, x, gradient):
    """Outputs, gradients of the parameters and of the input, by autograd."""
    x = x.clone().requires_grad_(True)
    parts = x.split([3, 2], -1) if isinstance(net, Critics) else (x,)
    out = net(*parts)
    gradients = torch.autograd.grad(out, [x, *net.parameters()], gradient, allow_unused=True)
    return out.detach(), gradients[1:], gradients[0]


@pytest.mark.parametrize("hidden", [(), (7,), (7, 6), (7, 6, 5)])
@pytest.mark.parametrize("kind", ["mlp", "critics"])
def test_passes_equal_autograds(kind, hidden):
    torch.manual_seed(0)
    net = MLP(5, hidden, 4) if kind == "mlp" else Critics(5, hidden, 2)
    x = torch.randn(9, 5)
    shape = (9, 4) if kind == "mlp" else (2, 9)
    gradient = torch.randn(shape)
    expected, by_parameter, by_input = differentiated(net, x, gradient)
    passes = Backprop(layers_of(net))
    with torch.no_grad():
        out = passes.forward(x)
        mine = passes.backward(gradient.view(out.shape), inputs=True)
    torch.testing.assert_close(out.view(shape), expected)
    # The input is shared by all critics: its gradients add up.
    torch.testing.assert_close(mine if kind == "mlp" else mine.sum(0), by_input)
    for parameter, gradient in zip(net.parameters(), by_parameter, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


def test_rows_beyond_the_gradients_leave_no_trace():
    torch.manual_seed(0)
    net, x, gradient = MLP(5, (7, 6), 4), torch.randn(9, 5), torch.randn(3, 4)
    _, by_parameter, _ = differentiated(net, x[:3], gradient)
    passes = Backprop(layers_of(net))
    with torch.no_grad():
        passes.forward(x)
        passes.backward(gradient)
    for parameter, expected in zip(net.parameters(), by_parameter, strict=True):
        torch.testing.assert_close(parameter.grad, expected)


def test_batches_of_all_sizes_share_one_room():
    torch.manual_seed(0)
    net = Critics(5, (7, 6), 2)
    passes = Backprop(layers_of(net))
    for rows in (4, 9, 3, 9, 8):
        x, gradient = torch.randn(rows, 5), torch.randn(2, rows)
        expected, by_parameter, by_input = differentiated(net, x, gradient)
        with torch.no_grad():
            out = passes.forward(x)
            torch.testing.assert_close(out[..., 0], expected)
            mine = passes.backward(gradient[..., None], inputs=True)
        torch.testing.assert_close(mine.sum(0), by_input)
        for parameter, gradient in zip(net.parameters(), by_parameter, strict=True):
            torch.testing.assert_close(parameter.grad, gradient)
    # Two critics of widths 5, 7, 6, 1: outputs of each layer and gradients of its inputs.
    kept = sum(room.numel() for room in passes._kept.values())
    assert kept == 2 * 9 * ((7 + 6 + 1) + (5 + 7 + 6))


def test_one_critic_of_two():
    torch.manual_seed(0)
    net, x = Critics(5, (7, 6), 2), torch.randn(9, 5)
    passes = Backprop(layers_of(net, 0))
    before = [p.grad for p in net.parameters()]
    with torch.no_grad():
        out = passes.forward(x)
        by_input = passes.backward(torch.ones_like(out), parameters=False, inputs=True)
    leaf = x.clone().requires_grad_(True)
    values = net.first(*leaf.split([3, 2], -1))
    torch.testing.assert_close(out[:, 0], values.detach())
    torch.testing.assert_close(by_input, torch.autograd.grad(values.sum(), leaf)[0])
    assert all((g == 0).all() for g in before)


def test_other_networks_are_left_to_autograd():
    assert layers_of(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh())) is None

    class Deeper(MLP):
        pass

    assert layers_of(Deeper(2, (3,), 1)) is None


def test_flat_adam_is_adam():
    torch.manual_seed(0)
    net = MLP(5, (7,), 4)
    reference = copy.deepcopy(net)
    theirs = torch.optim.Adam(reference.parameters(), lr=1e-2)
    mine = FlatAdam(net.parameters(), lr=1e-2)
    for step in range(5):
        x = torch.randn(9, 5)
        if step == 3:  # what was saved goes on
            saved = copy.deepcopy(mine.state_dict())
            mine = FlatAdam(net.parameters(), lr=1.0)
            mine.load_state_dict(saved)
        theirs.zero_grad()
        (reference(x) ** 2).mean().backward()
        theirs.step()
        gradients = torch.autograd.grad((net(x) ** 2).mean(), list(net.parameters()))
        for parameter, gradient in zip(net.parameters(), gradients, strict=True):
            parameter.grad.copy_(gradient)
        mine.step()
        for a, b in zip(net.parameters(), reference.parameters(), strict=True):
            torch.testing.assert_close(a, b)


# -- whole updates ---------------------------------------------------------------------------


def random_batch(rows=12, **more):
    g = torch.Generator().manual_seed(3)
    return {
        "obs": torch.randn(rows, 2, generator=g),
        "actions": torch.rand(rows, 1, generator=g) * 2 - 1,
        "rewards": torch.randn(rows, generator=g) * 3,
        "new_obs": torch.randn(rows, 2, generator=g),
        "terminateds": (torch.rand(rows, generator=g) < 0.3).float(),
        "truncateds": torch.zeros(rows),
        "weights": torch.rand(rows, generator=g) + 0.5,
        **more,
    }


@pytest.mark.parametrize("config", [SACConfig, TD3Config, DDPGConfig])
@pytest.mark.parametrize("variant", ["plain", "huber", "views", "n_step", "clamped", "regularized"])
def test_updates_equal_autograds(ray_session, config, variant):
    def learner():
        built = config().environment("Chain-v0").debugging(seed=0)
        built.hidden_sizes = (16, 8)
        built.tau = 0.1
        built.huber_loss = variant == "huber"
        built.actor_l2 = 0.1 if variant == "regularized" else 0.0
        if variant == "views":
            built.replay(recipe="s4rl", s4rl_num_views=2)
        torch.manual_seed(0)
        made = built.build_learner(env=gym.make("Chain-v0"))
        made.build()
        if variant == "clamped" and config is SACConfig:
            made.net.policy.net[-1].bias.data[1] = LOG_STD_MAX + 0.05
        return made

    batch = (
        random_batch(n_step=torch.tensor([1.0, 2.0, 3.0] * 4))
        if variant == "n_step"
        else random_batch()
    )
    written, recorded = learner(), learner()
    assert None not in written._passes_of
    recorded._passes_of = [None]
    recorded.net.load_state_dict(written.net.state_dict())
    for update in range(4):
        errors, expected = written.update_minibatch(batch), recorded.update_minibatch(batch)
        written._updates_lifetime = recorded._updates_lifetime = update + 1
        torch.testing.assert_close(errors, expected, rtol=1e-4, atol=1e-5)
        for (name, mine), (_, theirs) in zip(
            written.net.named_parameters(), recorded.net.named_parameters(), strict=True
        ):
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5, msg=name)
    written._updates_unreported = recorded._updates_unreported = 4
    assert written.report() == pytest.approx(recorded.report(), rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("config", [SACConfig, TD3Config])
def test_actor_l2_adds_its_gradient_to_the_policys_weights_alone(ray_session, config):
    def gradients(coefficient):
        built = config().environment("Chain-v0").debugging(seed=0)
        built.hidden_sizes, built.actor_l2, built.actor_lr = (8,), coefficient, 0.0
        torch.manual_seed(0)
        made = built.build_learner(env=gym.make("Chain-v0"))
        made.build()
        made._updates_lifetime = 1  # TD3: the policy's turn
        made.update_minibatch(random_batch())
        return {
            n: (p.grad.clone(), p.detach().clone()) for n, p in made.net.policy.named_parameters()
        }

    plain, penalized = gradients(0.0), gradients(0.5)
    for name, (gradient, value) in penalized.items():
        expected = plain[name][0] + (0.5 * value if name.endswith("weight") else 0)
        torch.testing.assert_close(gradient, expected)


def test_weights_that_are_loaded_are_the_ones_that_are_updated(ray_session):
    built = SACConfig().environment("Chain-v0").debugging(seed=0)
    built.hidden_sizes = (16,)
    one, other = (built.build_learner(env=gym.make("Chain-v0")) for _ in range(2))
    for made in (one, other):
        made.build()
    one.update_minibatch(random_batch())
    other.set_state(one.get_state())
    torch.testing.assert_close(
        one.update_minibatch(random_batch()), other.update_minibatch(random_batch())
    )
    for (name, a), (_, b) in zip(
        one.module[DEFAULT_MODULE_ID].named_parameters(),
        other.module[DEFAULT_MODULE_ID].named_parameters(),
        strict=True,
    ):
        torch.testing.assert_close(a, b, msg=name)
