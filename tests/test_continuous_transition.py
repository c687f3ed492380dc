"""Continuous Transition: bold where mixtures are as good as lived, and its learning by hand."""

import copy

import numpy as np
import pytest
import torch

from replay_buffers.augmentations import AdaptiveMixture, Context, Sample
from replay_buffers.augmentations.energy_model import energies
from replay_buffers.storage import Schema
from tests.test_augmentations import SCHEMA, random_rows, sample_of


def run_of(dynamics, rng, count=256):
    """Rows of a toy world and their successors: s' = f(s, a), r = s'[0]."""
    schema = Schema(1, 1)
    obs = rng.uniform(-2, 2, (count, 1))
    actions, following = rng.uniform(-1, 1, (count, 1)), rng.uniform(-1, 1, (count, 1))
    new_obs = dynamics(obs, actions)
    later = dynamics(new_obs, following)
    zeros = np.zeros(count)
    x = schema.pack(obs, actions, new_obs[:, 0], new_obs, zeros, zeros)
    y = schema.pack(new_obs, following, later[:, 0], later, zeros, zeros)
    return schema, x, y


def learned_b(dynamics, updates=300):
    rng = np.random.default_rng(0)
    schema = Schema(1, 1)
    ct = AdaptiveMixture(schema, seed=0, learning_rate=6e-3)
    with_b = []
    for _ in range(updates):
        _, x, y = run_of(dynamics, rng)
        ct(
            Sample(
                schema, x.copy(), np.ones(256, np.float32), partners=y, partnered=np.ones(256, bool)
            ),
            rng,
        )
        with_b.append(ct.b)
    return ct, with_b


def test_ct_stays_bold_on_linear_dynamics_and_gets_careful_on_kinked_ones():
    ct, linear = learned_b(lambda s, a: 0.5 * s + a)
    assert linear[-1] == 1.0
    assert ct.stats()["ct_energy"] < 0.1
    ct, kinked = learned_b(lambda s, a: 3 * np.abs(s) + a)
    assert kinked[-1] < 0.5
    assert ct.stats()["ct_b"] == kinked[-1]


def test_ct_energy_is_the_distance_of_the_model_from_the_line():
    of_x, of_y = torch.tensor([[1.0, 0.25]]), torch.tensor([[9.0, 0.25]])
    of_mixture = torch.tensor([[2.25, 0.0625]])
    # (2.25, .0625) against .75 (1, .25) + .25 (9, .25) = (3, .25).
    expected = ((2.25 - 3) ** 2 + (0.0625 - 0.25) ** 2) / 2
    found = energies(of_x, of_y, of_mixture, torch.tensor([0.75]))
    assert found.tolist() == pytest.approx([expected])


class Recorded:
    """The same learning with autograd and torch's Adam, an evaluation at a time."""

    def __init__(self, ct, lr):
        self.model, self.b = copy.deepcopy(ct._model._net), torch.tensor(1.0, requires_grad=True)
        self.optimizers = [torch.optim.Adam(p, lr=lr) for p in (self.model.parameters(), [self.b])]
        self.energy = 0.0

    def of(self, rows):
        return self.model(torch.from_numpy(rows[:, :5].copy()))  # obs and action

    def learn(self, x, y, mixture, lam, mixed):
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        real = np.concatenate([x, y[mixed]])
        known = torch.from_numpy(real[:, 5:9])  # reward and new_obs
        torch.nn.functional.mse_loss(self.of(real), known).backward()
        self.optimizers[0].step()
        with torch.no_grad():
            share = torch.from_numpy(lam[mixed, None])
            line = share * self.of(x[mixed]) + (1 - share) * self.of(y[mixed])
            energy = ((self.of(mixture[mixed]) - line) ** 2).mean(1)
        (self.b.log() * (energy - 0.1)).mean().backward()
        self.optimizers[1].step()
        self.b.data.clamp_(1e-6, 1.0)
        self.energy = float(energy.mean())


@pytest.mark.parametrize("partnered", [1.0, 0.7, 0.0])
def test_ct_learns_as_autograd_does(partnered):
    rng = np.random.default_rng(0)
    ct = AdaptiveMixture(SCHEMA, seed=0)
    ct.attach(Context(learning_rate=1e-2))
    reference = Recorded(ct, 1e-2)
    start = ct.get_state()["model"]["weights"]["0.weight"]
    bs = []
    for _ in range(20):
        x, y = random_rows(rng, 64), random_rows(rng, 64)
        sample = sample_of(x.copy(), y, rng.random(64) < partnered)
        ct(sample, rng)
        if sample.partnered.any():
            reference.learn(x, y, sample.rows, sample.lam, sample.partnered)
        bs.append(ct.b)
        assert ct.b == pytest.approx(float(reference.b.detach()), rel=1e-4)
        assert ct.stats()["ct_energy"] == pytest.approx(reference.energy, rel=1e-3)
    for (name, mine), theirs in zip(
        ct._model._net.named_parameters(), reference.model.parameters(), strict=True
    ):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4, msg=name)
    learned = ct.get_state()["model"]["weights"]["0.weight"]
    assert (len(set(bs)) > 5 and (learned != start).any()) == (partnered > 0)


def test_ct_mixes_terminal_flags_and_leaves_rows_without_successor():
    rng = np.random.default_rng(0)
    x, y = random_rows(rng, 40), random_rows(rng, 40)
    y[:, -2] = 1
    partnered = np.arange(40) < 30
    sample = sample_of(x, y, partnered)
    ct = AdaptiveMixture(SCHEMA, seed=0, fixed=0.75)
    ct(sample, rng)
    np.testing.assert_array_equal(sample.rows[30:], x[30:])
    lam = sample.lam[:30]
    np.testing.assert_allclose(sample.rows[:30, -2], 1 - lam, atol=1e-6)
    np.testing.assert_allclose(
        sample.rows[:30, :3],
        y[:30, :3] + lam[:, None] * (x[:30, :3] - y[:30, :3]),
        rtol=1e-5,
        atol=1e-5,
    )
    np.testing.assert_array_equal(sample.rows[:, -1], x[:, -1])
    assert ct.b == 0.75


def test_ct_goes_on_from_its_state():
    def step(ct, seed):
        rng = np.random.default_rng(seed)
        _, x, y = run_of(lambda s, a: np.abs(s) + a, rng)
        sample = Sample(
            Schema(1, 1), x, np.ones(256, np.float32), partners=y, partnered=np.ones(256, bool)
        )
        ct(sample, rng)
        return sample.rows

    original, other = AdaptiveMixture(Schema(1, 1), seed=0), AdaptiveMixture(Schema(1, 1), seed=9)
    for seed in range(5):
        step(original, seed)
    other.set_state(original.get_state())
    np.testing.assert_array_equal(step(original, 7), step(other, 7))
    assert original.b == other.b
    np.testing.assert_array_equal(
        original.get_state()["model"]["weights"]["0.weight"],
        other.get_state()["model"]["weights"]["0.weight"],
    )
