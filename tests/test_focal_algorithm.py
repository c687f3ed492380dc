"""The algorithm: every method and variant learns, nothing flows where it shouldn't, runs go on exactly."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from ray.rllib.core import DEFAULT_MODULE_ID

from interreplay.errors import UsageError
from interreplay.focal.algorithm import Focal, FocalConfig
from interreplay.focal.progress import embedding_rows, progress_row
from interreplay.focal.reading import read
from interreplay.focal.settings import METHODS
from tests.meta_data import PointSource

TINY = {
    "meta_batch": 4,
    "batch_size": 8,
    "embedding_batch_size": 6,
    "num_train_steps_per_itr": 3,
    "num_initial_steps": 60,
    "num_tasks_sample": 2,
    "num_steps_prior": 10,
    "num_extra_rl_steps_posterior": 5,
    "policy_lr": 1e-3,
    "alpha_init": 1.0,
}


@pytest.fixture(autouse=True)
def _ray(ray_session):
    torch.set_num_threads(1)


def settings(method="focal", **algo):
    given = {"n_train_tasks": 4, "latent_size": 3, "net_size": 16, "algo_params": {**TINY, **algo}}
    return read({**given, "method": method})


def build(method="focal", source=None, seed=5, **algo):
    config = FocalConfig().debugging(seed=seed)
    return config.meta(
        settings=settings(method, **algo), source=source or PointSource()
    ).build_algo()


def learner_of(algorithm):
    return algorithm.learner_group._learner


def weights(algorithm):
    module = learner_of(algorithm).module[DEFAULT_MODULE_ID]
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


VARIANTS = {
    **{name: {"method": name} for name in METHODS},
    "w": {"divergence_name": "w"},
    "mmd": {"divergence_name": "mmd"},
    "mmd with value penalty": {"divergence_name": "mmd", "use_value_penalty": True},
    "v": {"value": "v"},
    "v with value penalty": {"value": "v", "use_value_penalty": True},
    "value penalty": {"use_value_penalty": True},
    "no brac": {"use_brac": False},
    "code form": {"metric_form": "code"},
    "linear": {"metric_power": "linear"},
    "next obs": {"use_next_obs_in_context": True},
    "no entropy": {"max_entropy": False},
    "without replacement": {"mb_replace": False},
    "all at once": {"data_schedule": "all"},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_every_method_and_variant_learns_and_stays_finite(name):
    algorithm = build(**VARIANTS[name])
    before = weights(algorithm)
    result = algorithm.train()
    figures = result["learners"][DEFAULT_MODULE_ID]
    assert all(np.isfinite(list(figures.values())))
    after = weights(algorithm)
    assert all(torch.isfinite(value).all() for value in after.values())
    still = {n for n, value in before.items() if torch.equal(value, after[n])}
    # Every network moves, targets included; W's critic doesn't care what is added to it.
    assert still <= ({"dual.6.bias"} if name == "w" else {"latents"})
    assert result["Number of train steps total"] == 3
    obs, z = np.zeros((2, 2), np.float32), algorithm.meta_policy().prior()
    for deterministic in (True, False):
        actions = algorithm.meta_policy().act(obs, z, deterministic=deterministic)
        assert actions.shape == (2, 2)
        assert (np.abs(actions) <= 1).all()
    mean, variance = algorithm.embed(algorithm.data.train[0])
    assert mean.shape == variance.shape == (3,)
    algorithm.stop()


def test_metrics_have_the_old_names_where_they_are_true():
    algorithm = build(value="v")
    result = algorithm.train()
    figures = result["learners"][DEFAULT_MODULE_ID]
    four = [
        f"{what} {which}"
        for what in (
            *("Q Predictions", "V Predictions", "Log Pis", "Policy mu", "Policy log std"),
            *("alpha", "div_estimate"),
        )
        for which in ("Mean", "Std", "Max", "Min")
    ]
    losses = ["Z Loss", "QF Loss", "VF Loss", "Policy Loss", "Dual Critic Loss"]
    z = ["Z mean train0", "Z mean train1", "Z mean train2", "Z variance train"]
    assert set(figures) == {*four, *losses, *z}
    row = progress_row(result)
    assert set(figures) < set(row)
    assert row["Number of train steps total"] == 3
    assert row["Epoch"] == 0
    rows = list(embedding_rows(algorithm, algorithm.data.train, contexts=2))
    assert [r["task_idx"] for r in rows] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert list(rows[0])[1:] == [f"z_{what}{i}" for what in ("means", "vars") for i in range(3)]
    assert rows[0] != rows[1]  # another context
    assert figures["Log Pis Min"] <= figures["Log Pis Mean"] <= figures["Log Pis Max"]
    algorithm.stop()


def test_data_become_visible_as_the_schedule_says_and_are_counted():
    algorithm = build()
    counted = [algorithm.train()["Number of env steps total"] for _ in range(2)]
    # 4 tasks * 60 at first, then 2 * (10 + 0 + 5) each iteration.
    assert counted == [240 + 30, 240 + 60]
    assert algorithm.bank.visible.sum() == 240 + 60
    for _ in range(40):
        algorithm._reveal()
    assert (algorithm.bank.visible <= algorithm.bank.counts).all()
    algorithm.stop()


def test_what_is_hidden_is_never_drawn():
    algorithm = build()
    bank = algorithm.bank
    bank.reveal(np.array([2]), 7)
    drawn = bank.sample(np.array([2, 2]), 500, np.random.default_rng(0)).reshape(1000, -1)
    visible = bank.rows[bank.starts[2] : bank.starts[2] + 7]
    assert {row.tobytes() for row in drawn} == {row.tobytes() for row in visible}
    algorithm.stop()


def test_a_meta_batch_holds_each_tasks_own_rows_scaled_and_with_the_contexts_reward():
    source = PointSource(sparse=True, scale=2.0)
    algorithm = build(source=source, data_schedule="all", sparse_rewards=True)
    algorithm._reveal()
    batch = algorithm.meta_batches(2)
    assert batch["rows"].shape == (8, 8, 12)
    assert batch["context"].shape == (8, 2, 6, 5)
    for task, rows, context in zip(batch["task"], batch["rows"], batch["context"], strict=True):
        data = algorithm.data.train[task]
        columns = data.storage.schema.unpack(data.storage.rows)
        dense, sparse = columns["rewards"], data.context_rewards
        # Rows are found again by what is continuous and hence unique.
        for row in rows:
            index = np.flatnonzero(dense == row[7])[0]
            np.testing.assert_allclose(row[0:2], columns["obs"][index] / 2, rtol=1e-6)
            np.testing.assert_array_equal(row[2:4], columns["actions"][index])
            np.testing.assert_allclose(row[5:7], columns["new_obs"][index] / 2, rtol=1e-6)
            assert (row[4], row[8]) == (sparse[index], 0)
            last = index % 20 == 19
            assert row[11] == (0 if last else 1)
            expected = np.zeros(2) if last else columns["actions"][index + 1]
            np.testing.assert_array_equal(row[9:11], expected)
        known = np.concatenate([columns["obs"] / 2, columns["actions"]], 1)
        for seen in context.reshape(-1, 5):
            same = np.isclose(known, seen[:4], atol=1e-6).all(1)  # clipped first steps coincide
            assert seen[4] in sparse[same]
    algorithm.stop()


@pytest.mark.parametrize("coupled", [False, True])
def test_the_bellman_loss_reaches_the_encoder_only_when_coupled(coupled):
    # Nothing else trains it: the metric loss has weight zero.
    algorithm = build(allow_backward_z=coupled, z_loss_weight=0.0)
    algorithm._reveal()
    before = weights(algorithm)
    algorithm._update(1)
    gradients = [p.grad for p in learner_of(algorithm).net.encoder.parameters()]
    after = weights(algorithm)
    encoder = [name for name in before if name.startswith("encoder")]
    if coupled:
        assert all(gradient.abs().sum() > 0 for gradient in gradients)
        assert any(not torch.equal(before[name], after[name]) for name in encoder)
    else:
        assert all((gradient == 0).all() for gradient in gradients)
        assert all(torch.equal(before[name], after[name]) for name in encoder)
    assert not torch.equal(before["critics.weights.0"], after["critics.weights.0"])
    algorithm.stop()


def test_updates_are_the_same_however_many_the_learner_gets_at_once(monkeypatch):
    together = build()
    together.train()
    monkeypatch.setattr(Focal, "_updates_at_once", 1)
    single = build()
    single.train()
    for name, value in weights(together).items():
        torch.testing.assert_close(weights(single)[name], value, rtol=0, atol=0)
    together.stop()
    single.stop()


@pytest.mark.parametrize("method", ["focal", "batch_pearl", "contextual_bcq"])
def test_a_restored_run_makes_identical_further_updates(tmp_path, method):
    original = build(method)
    original.train()
    original.save_to_path(str(tmp_path / "saved"))
    restored = Focal.from_checkpoint(str(tmp_path / "saved"))
    assert restored.train_steps == 3
    figures = [algorithm.train() for algorithm in (original, restored)]
    for name in ("Number of train steps total", "Number of env steps total", "visible_fraction"):
        assert figures[0][name] == figures[1][name]
    reports = [result["learners"][DEFAULT_MODULE_ID] for result in figures]
    assert reports[0] == reports[1]
    for name, value in weights(original).items():
        torch.testing.assert_close(weights(restored)[name], value, rtol=0, atol=0)
    original.stop()
    restored.stop()


class Changing:
    """A source whose data are others each time."""

    def __init__(self):
        self.times = 0

    def load(self):
        self.times += 1
        return PointSource(seed=self.times).load()


def test_data_that_changed_are_refused():
    algorithm = build(source=Changing())
    state = algorithm.get_state()
    other = build(source=PointSource(seed=7))
    with pytest.raises(UsageError, match="data have changed"):
        other.set_state(state)
    algorithm.stop()
    other.stop()


def test_seeds_decide_everything():
    results = []
    for seed in (1, 1, 2):
        algorithm = build(seed=seed)
        algorithm.train()
        results.append(weights(algorithm)["policy.net.0.weight"])
        algorithm.stop()
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


def test_alpha_follows_the_divergence_by_adams_step_and_is_clamped():
    algorithm = build(alpha_init=1.5, alpha_max=2.0)
    learner = learner_of(algorithm)
    learner.alpha_step(torch.tensor([0.9, 0.1]))  # mean 0.5 > 0.05: Adam's first step is lr = 1
    assert learner.net.alpha.item() == 2.0
    other = build(alpha_init=1.5)
    learner_of(other).alpha_step(torch.tensor([0.0, 0.0]))
    assert learner_of(other).net.alpha.item() == pytest.approx(0.5, abs=1e-6)
    learner_of(other).alpha_step(torch.tensor([-1.0, 0.0]))
    assert learner_of(other).net.alpha.item() == 0.0
    algorithm.stop()
    other.stop()


def test_value_penalty_is_at_the_next_state_and_ends_with_the_episode():
    algorithm = build(use_value_penalty=True, alpha_init=3.0, discount=0.5)
    algorithm._reveal()
    learner = learner_of(algorithm)
    n = 4
    batch = algorithm.meta_batches(1)
    rows = learner.transitions(torch.as_tensor(batch["rows"])[:1, :n], torch.zeros(n, 3))
    rows = rows._replace(
        alive=torch.tensor([1.0, 1.0, 0.0, 1.0]), follows=torch.tensor([1.0, 0.0, 1.0, 1.0])
    )
    seen = []

    def divergence(states, behaviour, policy):
        seen.append((states, behaviour))
        return torch.full((len(states),), 2.0)

    learner.divergence = divergence
    state = learner._generator.get_state()
    with_penalty = learner.bellman_q_target(rows)
    learner._generator.set_state(state)
    learner.net.alpha.data.zero_()
    without = learner.bellman_q_target(rows)
    # gamma * alpha * D = 0.5 * 3 * 2 where the episode goes on on both counts.
    torch.testing.assert_close(without - with_penalty, torch.tensor([3.0, 0.0, 0.0, 3.0]))
    torch.testing.assert_close(seen[0][0], rows.next_states)
    torch.testing.assert_close(seen[0][1], rows.next_actions)
    assert not torch.equal(rows.states, rows.next_states)
    assert with_penalty[2] == rows.rewards[2]  # terminal: the reward alone
    algorithm.stop()


class Empty:
    def load(self):
        data = PointSource().load()
        data.train[1].storage.written = 0
        return type(data)(data.train)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda c: c.meta(source=None), "give meta"),
        (lambda c: c.meta(source=PointSource()).learners(num_learners=2), "num_learners is 2"),
        (lambda c: c.meta(source=PointSource()).environment("CartPole-v1"), "data alone"),
        (lambda c: c.meta(source=Empty()), "task 1 has no transitions"),
        (
            lambda c: c.meta(
                source=PointSource(tasks=3),
                settings=read({"n_train_tasks": 16, "algo_params": {"mb_replace": False}}),
            ),
            "data hold 3 training tasks",
        ),
    ],
)
def test_what_cant_work_is_refused_in_a_sentence(change, sentence):
    config = FocalConfig().debugging(seed=0).meta(settings=settings())
    with pytest.raises(UsageError, match=sentence):
        change(config).build_algo()


def test_no_environment_is_made_or_stepped(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("an environment was made")

    monkeypatch.setattr(gym, "make", refuse)
    monkeypatch.setattr(gym, "make_vec", refuse)
    algorithm = build()
    algorithm.train()
    with pytest.raises(UsageError, match="meta_policy"):
        algorithm.env_runner.sample()
    algorithm.stop()


def test_embeddings_separate_tasks_and_recognise_held_out_ones():
    source = PointSource(tasks=7, episodes=15, held_out=True)
    algorithm = build(
        source=source,
        data_schedule="all",
        use_brac=False,
        embedding_batch_size=48,
        num_train_steps_per_itr=250,
        context_lr=1e-3,
        meta_batch=5,
        batch_size=2,
    )
    algorithm.train()
    train = [algorithm.embed(d)[0] for d in algorithm.data.train]
    again = [algorithm.embed(d, seed=1)[0] for d in algorithm.data.train]
    within = max(np.linalg.norm(a - b) for a, b in zip(train, again, strict=True))
    between = min(np.linalg.norm(a - b) for i, a in enumerate(train) for b in train[:i])
    assert between > 2 * within
    # A held-out goal lies between two training goals; its embedding is nearest to one of them.
    for data in algorithm.data.test:
        z = algorithm.embed(data)[0]
        nearest = algorithm.data.train[np.argmin([np.linalg.norm(z - t) for t in train])].task
        assert abs(nearest - data.task) == 1
    algorithm.stop()
