"""FOCAL's update: against its matrix products alone, against a plain loop over tasks, by cause.

    python -m benchmarks.focal_speed                 # meta-batch 16 x 256, about three minutes
    python -m benchmarks.focal_speed --rounds 5

Sizes are those of cheetah-vel (obs 20, actions 6, nets 3 x 256, latent 20, context 64 and KL with
three steps of the dual critic). The three take turns in one process on one torch thread, so that a
machine whose speed drifts treats them alike: what counts is the ratio within a round.
"""

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from interreplay.algorithms.modules import squash
from interreplay.focal.algorithm import FocalConfig
from interreplay.focal.data import MetaDataset, TaskData
from interreplay.focal.divergences import gradient_penalty, kl_dual
from interreplay.focal.reading import read
from interreplay.launch.running.private_ray import private_ray
from replay_buffers.storage import Schema, Storage

OBS, ACTIONS, TASKS, ROWS = 20, 6, 40, 2000
META_BATCH, BATCH, CONTEXT = 16, 256, 64
RESULTS = Path(__file__).parent / "results" / "focal_speed.json"
PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")


class Noise:
    """Tasks of random numbers: speed doesn't ask what they mean."""

    def load(self) -> MetaDataset:
        rng = np.random.default_rng(0)
        schema = Schema(OBS, ACTIONS)
        tasks = []
        for task in range(TASKS):
            rows = rng.uniform(-1, 1, (ROWS, schema.width)).astype(np.float32)
            rows[:, -2:] = 0
            storage = Storage(schema, ROWS)
            storage.add(rows, np.arange(ROWS) // 200, np.arange(ROWS) % 200)
            tasks.append(TaskData(task, storage))
        return MetaDataset(tuple(tasks))


def build() -> Any:
    """The algorithm with all its data visible."""
    algo = {"meta_batch": META_BATCH, "batch_size": BATCH, "embedding_batch_size": CONTEXT}
    settings = read({"algo_params": {**algo, "data_schedule": "all"}})
    algorithm = FocalConfig().debugging(seed=0).meta(settings=settings, source=Noise()).build_algo()
    algorithm._reveal()
    return algorithm


class Recorder(TorchDispatchMode):
    """Notes the operands of every matrix product that runs under it."""

    def __init__(self) -> None:
        super().__init__()
        self.products: list[tuple[Any, tuple[Tensor, ...]]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = func.overloadpacket.__name__
        if name in PRODUCTS:
            operands = args[-2:] if name in ("addmm", "baddbmm") else args
            plain = torch.mm if name in ("mm", "addmm") else torch.bmm
            self.products.append((plain, tuple(operands)))
        return func(*args, **(kwargs or {}))


def like(x: Tensor) -> Tensor:
    """Random numbers of the same layout, so that none of the update's tensors is kept alive."""
    extent = 1 + sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True))
    return torch.randn(extent).as_strided(x.shape, x.stride())


def products_alone(algorithm: Any) -> tuple[Callable[[], None], float]:
    """A function that repeats one update's products into kept tensors; and their GFLOP."""
    with Recorder() as recorder:
        algorithm._update(1)
    plan, flop = [], 0
    kept: dict[tuple[int, ...], Tensor] = {}
    for product, (left, right) in recorder.products:
        operands = [like(left), like(right)]
        shape = (*left.shape[:-1], right.shape[-1])
        out = kept.setdefault(shape, torch.empty(shape))
        plan.append((product, operands, out))
        flop += 2 * left.numel() * right.shape[-1]

    def repeat() -> None:
        for product, (left, right), out in plan:
            product(left, right, out=out)

    return repeat, flop / 1e9


class PlainLoop:
    """The same update, task by task and pair by pair, with torch's own Adam.

    As one writes it down from the paper: each task's rows go through the networks on their own, the
    losses are summed over tasks, and the two critics are called one after the other.
    """

    def __init__(self, algorithm: Any) -> None:
        self.bank = algorithm.bank
        self.net = algorithm.learner_group._learner.net
        self.rng = np.random.default_rng(0)
        net = self.net
        groups = {
            "encoder": (net.encoder, 3e-4),
            "policy": (net.policy, 3e-4),
            "critic": (net.critics, 3e-4),
            "dual": (net.dual, 1e-4),
        }
        self.adam = {
            name: torch.optim.Adam(module.parameters(), lr=lr)
            for name, (module, lr) in groups.items()
        }
        self.alpha = 500.0

    def step(self, name: str, loss: Tensor) -> None:
        """One step of one optimizer."""
        self.adam[name].zero_grad()
        loss.backward()
        self.adam[name].step()

    def q(self, critics: Any, states: Tensor, actions: Tensor) -> list[Tensor]:
        """Both critics' values `[B]`, one after the other."""
        values = []
        for index in range(2):
            x = torch.cat([states, actions], -1)
            layers = list(zip(critics.weights, critics.biases, strict=True))
            for number, (weight, bias) in enumerate(layers):
                x = x @ weight[index] + bias[index]
                x = x.relu() if number < len(layers) - 1 else x
            values.append(x.squeeze(-1))
        return values

    def act(self, states: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Mean, log std, actions and their log density."""
        mean, log_std = self.net.policy(states)
        return mean, log_std, *squash(mean, log_std, torch.randn_like(mean))

    def update(self) -> None:
        """One update on a meta-batch."""
        net, layout = self.net, self.bank.layout
        chosen = self.rng.choice(len(self.bank), META_BATCH)
        tasks, contexts = [], []
        for task in chosen:
            rows = self.bank.sample(np.array([task]), BATCH, self.rng)[0]
            tasks.append(torch.from_numpy(rows).split(layout.sizes, -1))
            for _ in range(2):
                rows = self.bank.sample(np.array([task]), CONTEXT, self.rng)[0]
                contexts.append(torch.from_numpy(rows[:, layout.context(False)]))
        z = [net.encoder(context).mean for context in contexts]
        same, different = [], []
        for i, j in itertools.combinations(range(len(z)), 2):
            squared = ((z[i] - z[j]) ** 2).sum()
            if chosen[i // 2] == chosen[j // 2]:
                same.append(squared)
            else:
                different.append(1.0 / (squared + 0.1))
        self.step("encoder", 10 * (sum(same) / len(same) + sum(different) / len(different)))

        def state(obs: Tensor, index: int) -> Tensor:
            return torch.cat([obs, z[2 * index].detach().expand(len(obs), -1)], -1)

        for _ in range(3):
            loss = torch.zeros(())
            for index, (obs, actions, *_rest) in enumerate(tasks):
                states = state(obs, index)
                with torch.no_grad():
                    made = self.act(states)[2]
                loss = loss + self.dual_loss(states, actions, made) / META_BATCH
            self.step("dual", loss)

        loss = torch.zeros(())
        for index, (obs, actions, _, new_obs, rewards, ended, *_rest) in enumerate(tasks):
            with torch.no_grad():
                following = state(new_obs, index)
                _, _, made, log_pi = self.act(following)
                best = torch.minimum(*self.q(net.target_critics, following, made)) - log_pi
                target = 5 * rewards.squeeze(-1) + 0.99 * (1 - ended.squeeze(-1)) * best
            for values in self.q(net.critics, state(obs, index), actions):
                loss = loss + F.mse_loss(values, target) / META_BATCH
        self.step("critic", loss)

        loss, estimates = torch.zeros(()), []
        for index, (obs, actions, *_rest) in enumerate(tasks):
            states = state(obs, index)
            mean, log_std, made, log_pi = self.act(states)
            estimate = kl_dual(self.dual(states, actions), self.dual(states, made)).mean()
            value = torch.minimum(*self.q(net.critics, states, made)).mean()
            penalty = 1e-3 * ((mean**2).mean() + (log_std**2).mean())
            loss = loss + (self.alpha * estimate + log_pi.mean() - value + penalty) / META_BATCH
            estimates.append(estimate.item())
        self.step("policy", loss)
        self.alpha = min(max(self.alpha + statistics.fmean(estimates) - 0.05, 0.0), 2000.0)
        with torch.no_grad():
            pairs = zip(net.target_critics.parameters(), net.critics.parameters(), strict=True)
            for old, new in pairs:
                old += 0.005 * (new - old)

    def dual(self, states: Tensor, actions: Tensor) -> Tensor:
        """c(s, a, z) `[B]`."""
        values: Tensor = self.net.dual(torch.cat([states, actions], -1)).squeeze(-1)
        return values

    def dual_loss(self, states: Tensor, actions: Tensor, made: Tensor) -> Tensor:
        """The dual critic's loss on one task."""
        estimate = kl_dual(self.dual(states, actions), self.dual(states, made)).mean()
        mix = torch.rand(len(states), 1)
        return gradient_penalty(lambda a: self.dual(states, a), actions, made, mix) - estimate


def per_second(function: Callable[[], None], times: int) -> float:
    """Calls per second."""
    started = time.perf_counter()
    for _ in range(times):
        function()
    return times / (time.perf_counter() - started)


CAUSES = {
    "matrix products": ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"),
    "optimizers and targets": ("aten::_fused_adam_", "aten::_foreach_lerp_", "Optimizer.step"),
    "copies (concatenation, gradients into place)": ("aten::copy_", "aten::cat", "aten::clone"),
    "ReLU": ("aten::relu", "aten::relu_", "aten::clamp_min", "aten::threshold_backward"),
    "sums (biases' gradients, means)": ("aten::sum", "aten::mean", "aten::var"),
    "random numbers": ("aten::normal_", "aten::uniform_", "aten::randn", "aten::rand"),
}


def by_cause(algorithm: Any, updates: int) -> dict[str, float]:
    """Shares of an update's time: torch's own operations by cause, drawing rows, the rest."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        algorithm._update(updates)
    own = {event.key: event.self_cpu_time_total for event in profile.key_averages()}
    all_time = sum(own.values())
    shares = {
        cause: sum(t for key, t in own.items() if key.startswith(names)) / all_time
        if cause == "optimizers and targets"
        else sum(own.get(name, 0.0) for name in names) / all_time
        for cause, names in CAUSES.items()
    }
    shares["other element-wise operations"] = 1 - sum(shares.values())
    return {cause: round(share, 3) for cause, share in shares.items()}


def measure(rounds: int, updates: int) -> dict[str, Any]:
    """Let the three take turns."""
    torch.set_num_threads(1)
    with private_ray(0):
        algorithm = build()
        repeat, gflop = products_alone(algorithm)
        loop = PlainLoop(build())
        loop.update()
        rows = []
        for number in range(rounds):
            ours = per_second(lambda: algorithm._update(1), updates)
            alone = per_second(repeat, updates)
            plain = per_second(loop.update, max(1, updates // 4))
            drawn = per_second(lambda: algorithm.meta_batches(1), updates)
            rows.append(
                {"updates_per_s": ours, "products_per_s": alone, "loop_updates_per_s": plain}
                | {"times_the_loop": ours / plain, "of_the_products": ours / alone}
                | {"drawing_share": ours / drawn}
            )
            print(number + 1, {name: round(value, 3) for name, value in rows[-1].items()})
        shares = by_cause(algorithm, 5)
        algorithm.stop()
    medians = {name: statistics.median(row[name] for row in rows) for name in rows[0]}
    return {
        "sizes": {"meta_batch": META_BATCH, "batch_size": BATCH, "context": CONTEXT},
        "gflop_of_an_update": round(gflop, 2),
        "median": {name: round(value, 3) for name, value in medians.items()},
        "rounds": rows,
        "shares_of_an_update": shares,
    }


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--updates", type=int, default=8)
    options = parser.parse_args()
    result = measure(options.rounds, options.updates)
    print(json.dumps({k: v for k, v in result.items() if k != "rounds"}, indent=2))
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
