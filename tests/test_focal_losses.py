"""The losses against values worked by hand, finite differences, and what they are defined to do."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.special import ndtr

from interreplay.algorithms.modules import MLP
from interreplay.focal.divergences import (
    action_gradient,
    gradient_penalty,
    kl_dual,
    mmd,
    slope_penalty,
    w_dual,
)
from interreplay.focal.encoder import ContextEncoder, Posterior, kl_to_prior, product_of_gaussians
from interreplay.focal.metric_loss import REPULSION, metric_loss
from interreplay.focal.networks import Generator, Perturbation, TaskPolicy
from interreplay.focal.task_inference import embedding_spread

FORMS = ("paper", "code")


def differences(function, x, step=1e-6):
    """The gradient of a scalar function by central differences, in float64."""
    gradient = torch.zeros_like(x)
    for index in np.ndindex(*x.shape):
        there, back = x.clone(), x.clone()
        there[index] += step
        back[index] -= step
        gradient[index] = (function(there) - function(back)) / (2 * step)
    return gradient


# -- metric loss -------------------------------------------------------------------------------

# Two contexts of task 7, one of task 3. Squared distances: (a, b) 0.05, (a, c) 1, (b, c) 0.65.
Z = torch.tensor([[0.0, 0.0], [0.1, 0.2], [1.0, 0.0]], dtype=torch.float64)
Z[2] = torch.tensor([0.8, 0.6])
TASKS = torch.tensor([7, 7, 3])


def by_hand(power, form):
    apart = [0.8**2 + 0.6**2, 0.7**2 + 0.4**2]
    together = 0.1**2 + 0.2**2
    if form == "code":
        apart, together = [d / 2 for d in apart], math.sqrt(together / 2 + 1e-3)
    cost = {
        "inverse_square": lambda d2: 1 / (d2 + 0.1),
        "inverse": lambda d2: 2 / (math.sqrt(d2) + 0.1),
        "linear": lambda d2: -8 * math.sqrt(d2),
        "square": lambda d2: -16 * d2,
    }[power]
    return together + sum(map(cost, apart)) / 2


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("power", REPULSION)
def test_metric_loss_by_hand(power, form):
    assert metric_loss(Z, TASKS, power, form).item() == pytest.approx(by_hand(power, form))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("power", REPULSION)
def test_metric_losses_gradient_by_differences(power, form):
    z = torch.randn(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    tasks = torch.tensor([0, 0, 1, 1, 2, 0])
    leaf = z.clone().requires_grad_(True)
    metric_loss(leaf, tasks, power, form).backward()
    expected = differences(lambda x: metric_loss(x, tasks, power, form), z)
    torch.testing.assert_close(leaf.grad, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("power", REPULSION)
def test_every_form_pulls_a_task_together_and_pushes_tasks_apart(power, form):
    """One small step along the negative gradient from points that are all about equally far."""
    z = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 0.3
    tasks = torch.tensor([0, 0, 0, 0, 0, 1])
    for same in (True, False):
        leaf = z.clone().requires_grad_(True)
        chosen, names = ((0, 1), tasks) if same else ((0, 5), tasks)
        pair = leaf[list(chosen)]
        metric_loss(pair, names[list(chosen)], power, form).backward()
        moved = z - 1e-3 * leaf.grad
        before = (z[chosen[0]] - z[chosen[1]]).norm()
        after = (moved[chosen[0]] - moved[chosen[1]]).norm()
        assert (after < before) if same else (after > before)


def test_metric_loss_is_finite_where_embeddings_coincide_and_without_a_second_task():
    for power in REPULSION:
        for form in FORMS:
            leaf = torch.zeros(4, 3, requires_grad=True)
            loss = metric_loss(leaf, torch.tensor([0, 0, 1, 1]), power, form)
            loss.backward()
            assert torch.isfinite(loss)
            assert torch.isfinite(leaf.grad).all()
    alone = torch.tensor([[0.0, 0.0], [0.3, 0.4]])
    assert metric_loss(alone, torch.tensor([5, 5]), "inverse").item() == pytest.approx(0.25)


# -- encoder -----------------------------------------------------------------------------------


def test_an_embedding_is_the_mean_over_transitions_whatever_their_order():
    torch.manual_seed(0)
    encoder = ContextEncoder(5, 3)
    context = torch.randn(2, 2, 7, 5)
    mean, variance = encoder(context)
    single = torch.stack([encoder(context[..., k : k + 1, :]).mean for k in range(7)], -2)
    torch.testing.assert_close(mean, single.mean(-2))
    torch.testing.assert_close(variance, ((single - mean[..., None, :]) ** 2).mean(-2))
    torch.testing.assert_close(encoder(context.flip(-2)).mean, mean)
    assert (single.abs() < 1).all()


def test_product_of_gaussians_and_its_divergence_from_the_prior():
    # Precisions 1/0.5 + 1/0.25 = 6: variance 1/6, mean (2 * 1 + 4 * -2) / 6 = -1.
    posterior = product_of_gaussians(torch.tensor([[1.0], [-2.0]]), torch.tensor([[0.5], [0.25]]))
    torch.testing.assert_close(posterior, Posterior(torch.tensor([-1.0]), torch.tensor([1 / 6])))
    reference = torch.distributions.kl_divergence(
        torch.distributions.Normal(torch.tensor([-1.0, 0.3]), torch.tensor([0.4, 2.0])),
        torch.distributions.Normal(0.0, 1.0),
    ).sum()
    kl = kl_to_prior(Posterior(torch.tensor([-1.0, 0.3]), torch.tensor([0.16, 4.0])))
    torch.testing.assert_close(kl, reference)


def test_table_ones_figures():
    # Two tasks at -1 and 1 in one dimension: distance 2, squared 4 > 2/3; std 1, sqrt(2 * 2 / 1).
    assert embedding_spread(torch.tensor([[-1.0], [1.0]])) == (pytest.approx(2.0), 1.0)
    # Pairs' mean squared distances: 0.125, 0.5, 1.125: one of three is above 2/3.
    z = torch.tensor([[0.0, 0.0], [0.5, 0.0], [1.5, 0.0]])
    assert embedding_spread(z)[1] == pytest.approx(1 / 3)
    # RMS is the root-mean-square distance of distinct tasks where there is one dimension.
    line = torch.tensor([[0.0], [1.0], [5.0]], dtype=torch.float64)
    assert embedding_spread(line)[0] == pytest.approx(math.sqrt((1 + 25 + 16) / 3))


# -- divergences -------------------------------------------------------------------------------


def softplus(x):
    return math.log1p(math.exp(x))


def test_duals_by_hand():
    behaviour, policy = torch.tensor([0.3, -2.0]), torch.tensor([-1.0, 1.5])
    pairs = list(zip(behaviour.tolist(), policy.tolist(), strict=True))
    expected = [-softplus(b) + math.log(softplus(p) + 1e-8) + 1 for b, p in pairs]
    torch.testing.assert_close(kl_dual(behaviour, policy), torch.tensor(expected))
    torch.testing.assert_close(w_dual(behaviour, policy), torch.tensor([-1.3, 3.5]))


def test_the_best_critic_gives_the_kullback_leibler_divergence():
    """softplus(c) = pi / b, pi = N(0.5, 1) and b = N(0, 1): the expectation of the dual is 1/8."""

    def pi(a):
        return math.exp(-0.5 * (a - 0.5) ** 2) / math.sqrt(2 * math.pi)

    def b(a):
        return math.exp(-0.5 * a**2) / math.sqrt(2 * math.pi)

    def critic(a, factor=1.0):
        return torch.tensor(math.log(math.expm1(factor * pi(a) / b(a))), dtype=torch.float64)

    def value(factor):
        # The two expectations separately: the dual is a sum of a function of each side.
        zero = torch.tensor(0.0, dtype=torch.float64)
        constant = kl_dual(zero, zero).item()
        of_policy = quad(lambda a: pi(a) * kl_dual(zero, critic(a, factor)).item(), -8, 8)[0]
        of_behaviour = quad(lambda a: b(a) * kl_dual(critic(a, factor), zero).item(), -8, 8)[0]
        return of_policy + of_behaviour - constant

    assert value(1.0) == pytest.approx(0.5**2 / 2, abs=1e-5)
    assert value(1.2) < value(1.0)
    assert value(0.8) < value(1.0)


def test_gradient_penalty_of_a_linear_critic_by_hand():
    weights = torch.tensor([3.0, 4.0])  # slope 5 everywhere, whatever the critic's value
    for shift in (0.0, 1000.0):
        penalty = gradient_penalty(
            lambda a, shift=shift: a @ weights + shift,
            torch.randn(6, 2),
            torch.randn(6, 2),
            torch.rand(6, 1),
        )
        assert penalty.item() == pytest.approx(5 * (5 - 1) ** 2)
    flat = gradient_penalty(
        lambda a: a @ (0.1 * weights), torch.zeros(3, 2), torch.ones(3, 2), torch.rand(3, 1)
    )
    assert flat.item() == 0  # slope 0.5: only what exceeds 1 costs


def test_gradient_penalty_is_taken_at_the_mix():
    """c = |a|^2 has slope 2 |a|; at a quarter of the way from (1, 0) to (5, 0) that is 4."""
    behaviour, policy = torch.tensor([[1.0, 0.0]]), torch.tensor([[5.0, 0.0]])
    penalty = gradient_penalty(lambda a: (a**2).sum(-1), behaviour, policy, torch.tensor([[0.25]]))
    assert penalty.item() == pytest.approx(5 * (4 - 1) ** 2, rel=1e-6)


def test_gradient_penalty_by_differences_in_the_critics_weights():
    torch.manual_seed(3)
    critic = MLP(2, (6, 6), 1).double()
    with torch.no_grad():
        for parameter in critic.parameters():
            parameter *= 3  # slopes well above 1
    behaviour, policy, mix = (torch.randn(5, n, dtype=torch.float64) for n in (2, 2, 1))
    weight = critic[2].weight

    def penalty():
        return gradient_penalty(critic, behaviour, policy, mix)

    (gradient,) = torch.autograd.grad(penalty(), weight)

    def at(values):
        old = weight.data.clone()
        weight.data.copy_(values)
        result = penalty().detach()
        weight.data.copy_(old)
        return result

    expected = differences(at, weight.data.clone(), step=1e-7)
    assert expected.abs().max() > 0.1
    torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("hidden", [(), (6,), (6, 5), (6, 5, 4)])
def test_the_written_gradient_and_its_penalty_equal_autograds(hidden):
    torch.manual_seed(4)
    critic = MLP(5, hidden, 1).double()
    with torch.no_grad():
        for parameter in critic.parameters():
            parameter *= 3
    states, behaviour, policy, mix = (torch.randn(9, n, dtype=torch.float64) for n in (3, 2, 2, 1))

    def whole(actions):
        return critic(torch.cat([states, actions], -1))

    expected = gradient_penalty(whole, behaviour, policy, mix)
    mixed = behaviour + mix * (policy - behaviour)
    mine = slope_penalty(action_gradient(critic, states, mixed))
    assert expected > 0
    torch.testing.assert_close(mine, expected)
    parameters = list(critic.parameters())
    gradients = [
        torch.autograd.grad(loss, parameters, allow_unused=True) for loss in (mine, expected)
    ]
    for parameter, a, b in zip(parameters, *gradients, strict=True):
        zero = torch.zeros_like(parameter)
        torch.testing.assert_close(zero if a is None else a, zero if b is None else b)


def test_mmd_by_hand():
    x = torch.tensor([[[0.0], [1.0]]])
    y = torch.tensor([[[2.0], [4.0]]])

    def k(*distances):
        return sum(math.exp(-d / 40) for d in distances) / len(distances)

    squared = k(0, 0, 1, 1) + k(0, 0, 2, 2) - 2 * k(2, 4, 1, 3)
    assert mmd(x, y).item() == pytest.approx(math.sqrt(squared + 1e-6), rel=1e-4)
    assert mmd(x, x).item() == pytest.approx(1e-3, rel=0.1)


def test_mmds_gradient_by_differences_and_towards_the_behaviour():
    torch.manual_seed(0)
    behaviour = torch.randn(3, 10, 2, dtype=torch.float64)
    policy = torch.randn(3, 10, 2, dtype=torch.float64) + 2
    leaf = policy.clone().requires_grad_(True)
    mmd(leaf, behaviour).sum().backward()
    expected = differences(lambda x: mmd(x, behaviour).sum(), policy)
    torch.testing.assert_close(leaf.grad, expected, rtol=1e-4, atol=1e-7)
    assert (leaf.grad.mean(1) > 0).all()  # less when the policy moves back towards 0


# -- networks ----------------------------------------------------------------------------------


def test_the_policys_density_integrates_to_one_and_fits_its_samples():
    torch.manual_seed(0)
    policy = TaskPolicy(3, 1, (8,))
    state = torch.randn(1, 3)

    grid = torch.linspace(-0.9999, 0.9999, 20001)[:, None]
    densities = policy.log_density(state.expand(len(grid), -1), grid).exp().detach()
    assert torch.trapezoid(densities, grid[:, 0]).item() == pytest.approx(1.0, abs=2e-3)
    mean, log_std = (value.item() for value in policy(state))
    expected = ndtr((math.atanh(0.3) - mean) / math.exp(log_std))
    below = grid[:, 0] <= 0.3
    share = torch.trapezoid(densities[below], grid[below, 0]).item()
    assert share == pytest.approx(expected, abs=2e-3)
    edge = policy.log_density(state, torch.tensor([[1.0]]))
    assert torch.isfinite(edge).all()


def test_log_std_never_exceeds_zero():
    policy = TaskPolicy(2, 1, (4,))
    policy.net[-1].bias.data[1] = 9.0
    assert (policy(torch.randn(5, 2))[1] == 0).all()


def test_the_generator_learns_what_the_data_do_in_a_state():
    torch.manual_seed(0)
    generator = Generator(1, 1, (32,))
    optimizer = torch.optim.Adam(generator.parameters(), 1e-2)
    for _ in range(300):
        states = torch.rand(64, 1) * 2 - 1
        loss = generator.loss(states, 0.8 * states, torch.randn(64, 2))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    states = torch.linspace(-1, 1, 9)[:, None]
    made = generator.decode(states, torch.zeros(9, 2))
    torch.testing.assert_close(made, 0.8 * states, atol=0.15, rtol=0)


def test_a_perturbation_is_small_and_stays_in_the_box():
    torch.manual_seed(0)
    perturb = Perturbation(2, 1, (4,), 0.05)
    perturb.net[-1].bias.data.fill_(50.0)
    out = perturb(torch.randn(3, 2), torch.tensor([[0.0], [0.5], [0.99]]))
    torch.testing.assert_close(out, torch.tensor([[0.05], [0.55], [1.0]]))
