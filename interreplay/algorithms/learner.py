"""What the trainers' learners share: the walk through minibatches, gradients, targets, metrics."""

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
import torch.distributed
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.torch.torch_learner import TorchLearner
from torch import Tensor
from torch.nn import functional as F

from interreplay.algorithms.backprop import layers_of
from interreplay.errors import UsageError
from replay_buffers.backprop import Backprop
from replay_buffers.flat_adam import FlatAdam

TD_ERRORS = "td_errors"
WEIGHTS, N_STEP = "weights", "n_step"


class OffPolicyLearner(TorchLearner):
    """Walks a block of transitions in minibatches, one gradient update each.

    RLlib's own `update` logs a dozen metrics per minibatch and moves targets once per call; here
    targets move inside each update, and figures are summed as tensors until `report` reads them.

    A trainer implements `configure_optimizers_for_module`, `update_minibatch` and `targets`.
    """

    def build(self) -> None:
        super().build()
        self._generator = torch.Generator(self._device)
        # Learners that share the work see different rows and need different noise.
        self._generator.manual_seed((self.config.seed or 0) + 7919 * self._learner_index)
        if self.config.seed is None:
            self._generator.seed()
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}  # not every figure comes with every update
        self._updates_unreported = 0
        self._updates_lifetime = 0
        self._pairs: list[tuple[list[Tensor], list[Tensor]]] = [
            (list(target.parameters()), list(source.parameters()))
            for target, source in self.targets()
        ]

    def obs_gradient(self, obs: Any) -> Any:
        """Gradient of min Q(s, pi(s)) with respect to s, `[n, o]` float32 numpy both ways."""
        states = torch.from_numpy(obs).to(self._device).requires_grad_(True)
        values = self.net.critics(states, self.net.policy.act(states)).amin(0)
        (gradient,) = torch.autograd.grad(values.sum(), states)
        return gradient.cpu().numpy()

    @property
    def net(self) -> Any:
        """The module being trained."""
        return self.module[DEFAULT_MODULE_ID]

    @abstractmethod
    def update_minibatch(self, batch: dict[str, Tensor]) -> Tensor:
        """One gradient update; returns the |TD error| `[B]` of each row, detached."""

    @abstractmethod
    def targets(self) -> list[tuple[torch.nn.Module, torch.nn.Module]]:
        """Pairs (target network, network it follows)."""

    def update(
        self,
        batch: Any = None,
        *,
        training_data: Any = None,
        minibatch_size: int | None = None,
        **_: Any,
    ) -> dict[str, Any]:
        """Walk through `batch` in slices of `minibatch_size` rows, `num_sgd_iter` updates on each.

        Returns:
            `td_errors`: `[n]` float32 numpy, in the order of the rows, as the last update on each
            slice found them. `report` gives the metrics.
        """
        if training_data is not None:
            training_data.solve_refs()
            batch = training_data.batch
        columns = {
            name: torch.as_tensor(column).to(self._device, non_blocking=True)
            for name, column in batch.policy_batches[DEFAULT_MODULE_ID].items()
        }
        count = len(next(iter(columns.values())))
        size = minibatch_size or count
        errors = []
        for start in range(0, count, size):
            minibatch = {k: v[start : start + size] for k, v in columns.items()}
            for _again in range(self.config.num_sgd_iter):
                td_errors = self.update_minibatch(minibatch)
                self._updates_lifetime += 1
                self._updates_unreported += 1
            errors.append(td_errors)
        self._weights_seq_no += 1
        return {TD_ERRORS: torch.cat(errors).cpu().numpy()}

    def report(self) -> dict[str, float]:
        """Means of the recorded figures since the last call; the only read from the device.

        Raises:
            UsageError: a figure is not finite, so training has diverged.
        """
        updates = self._updates_unreported
        if updates == 0:
            return {}
        names = list(self._sums)
        means = torch.stack([self._sums[n] / self._counts[n] for n in names]).tolist()
        self._sums, self._counts, self._updates_unreported = {}, {}, 0
        figures = dict(zip(names, means, strict=True))
        for name, value in figures.items():
            if not np.isfinite(value):
                raise UsageError(
                    f"training has diverged: the mean {name} of the last {updates} updates is "
                    f"{value}; lower the learning rates or scale the environment's rewards"
                )
        return figures

    def bellman_target(self, batch: dict[str, Tensor], next_values: Tensor) -> Tensor:
        """r + gamma^n (1 - terminated) V(s') `[B]`, n the number of steps that r sums over.

        Only a true terminal stops the bootstrap; a time limit does not.
        """
        alive = 1.0 - batch[Columns.TERMINATEDS]
        discount = self.config.gamma ** batch[N_STEP] if N_STEP in batch else self.config.gamma
        return batch[Columns.REWARDS] + discount * alive * next_values

    def critic_regression(
        self, values: Tensor, target: Tensor, weights: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Regress Q values `[C, B]` on a target `[B]`.

        With V views of each row (`[C, V B]` and `[V B]`, contiguous by view) both are averaged over
        a row's views first (S4RL, arXiv 2103.06326, eq. 2 and 3).

        Returns:
            The loss: half the weighted squared error (or Huber's), summed over the C critics and
            averaged over the rows; |TD error| `[B]`, averaged over the critics; and the loss's
            gradient with respect to the values, `[C, V B]`.
        """
        views = self.config.num_views
        if views > 1:
            values = values.view(len(values), views, -1).mean(1)
            target = target.view(views, -1).mean(0)
            weights = weights[: len(target)]
        errors = values - target
        detached = errors.detach()
        if self.config.huber_loss:
            per_row = F.huber_loss(values, target.expand_as(values), reduction="none").sum(0)
            gradient = weights * detached.clamp(-1.0, 1.0) / len(target)
        else:
            per_row = 0.5 * (errors**2).sum(0)
            gradient = weights * detached / len(target)
        if views > 1:
            gradient = gradient.repeat(1, views) / views
        return (weights * per_row).mean(), detached.abs().mean(0), gradient

    def _record(self, **figures: Tensor) -> None:
        for name, value in figures.items():
            value = value.detach()
            self._sums[name] = self._sums[name] + value if name in self._sums else value
            self._counts[name] = self._counts.get(name, 0) + 1

    def _noise(self, like: Tensor) -> Tensor:
        """N(0, 1), from the learner's own generator."""
        return torch.randn(like.shape, device=like.device, generator=self._generator)

    def _descend(self, optimizer_name: str, loss: Tensor) -> None:
        """One optimizer step on `loss`, differentiated for that optimizer's parameters only.

        Asking autograd for these gradients alone is what freezes the critics in the actor's pass.
        """
        parameters = self.get_optimizer(DEFAULT_MODULE_ID, optimizer_name).members
        gradients = torch.autograd.grad(loss, parameters)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad.copy_(gradient)
        self._step(optimizer_name)

    def _step(self, optimizer_name: str) -> None:
        """One optimizer step on the gradients that stand in `.grad`; decays the policy's weights.

        The penalty actor_l2 / 2 * sum(w^2) on the policy's weight matrices joins its loss here, by
        its gradient; the reported actor loss is without it.
        """
        optimizer = self.get_optimizer(DEFAULT_MODULE_ID, optimizer_name)
        if optimizer_name == "actor" and self.config.actor_l2 > 0:
            for weight in optimizer.members:
                if weight.dim() > 1:
                    weight.grad.add_(weight.data, alpha=self.config.actor_l2)
        if self.distributed:
            self._average(optimizer.vector.grad)
        optimizer.step()

    def _average(self, gradient: Tensor) -> None:
        """The mean over all learners: RLlib's DDP wrapper only sees its own forward pass."""
        torch.distributed.all_reduce(gradient)
        gradient /= self.config.num_learners

    def _passes(self, net: torch.nn.Module, critic: int | None = None) -> Backprop | None:
        """Written-out passes of a network; None where only autograd will do."""
        layers = layers_of(net, critic) if str(self._device) == "cpu" else None
        return None if layers is None else Backprop(layers)

    def _move_targets(self) -> None:
        """target <- target + tau (network - target), unless env steps drive the targets."""
        if not self.config.target_by_steps_sampled:
            self.move_targets(1)

    @torch.no_grad()
    def move_targets(self, times: int) -> None:
        """As many moves by tau, in one: between them the networks stand still.

        The networks want gradients, so without `no_grad` autograd would link every move to the one
        before and keep them all, 2 to 4 KB an update as long as the run lives.
        """
        share = 1.0 - (1.0 - self.config.tau) ** times
        for targets, sources in self._pairs:
            torch._foreach_lerp_(targets, sources, share)

    def _adam(self, name: str, parameters: Iterable[torch.nn.Parameter], lr: float) -> None:
        optimizer = FlatAdam(parameters, lr=lr)
        self.register_optimizer(
            module_id=DEFAULT_MODULE_ID,
            optimizer_name=name,
            optimizer=optimizer,
            params=[optimizer.vector],
        )

    # -- RLlib's hooks that a written-out update leaves empty ------------------------------------

    def _make_modules_ddp_if_necessary(self) -> None:
        """No DDP wrapper: gradients are averaged in `_step`, from equal initial weights."""
        if self.distributed:
            for tensor in [*self.net.parameters(), *self.net.buffers()]:
                torch.distributed.broadcast(tensor.data, 0)

    def compute_loss_for_module(self, **_: Any) -> Any:
        raise NotImplementedError("the losses are computed in update_minibatch")

    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        state: dict[str, Any] = super().get_state(*args, **kwargs)
        state["learner_generator"] = self._generator.get_state().numpy()
        state["updates_lifetime"] = self._updates_lifetime
        state["unreported"] = {
            "sums": {name: value.cpu() for name, value in self._sums.items()},
            "counts": dict(self._counts),
            "updates": self._updates_unreported,
        }
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        if "learner_generator" in state:
            self._updates_lifetime = int(state["updates_lifetime"])
            self._generator.set_state(torch.from_numpy(np.array(state["learner_generator"])))
        if "unreported" in state:
            figures = state["unreported"]
            self._sums = {k: v.to(self._device) for k, v in figures["sums"].items()}
            self._counts = dict(figures["counts"])
            self._updates_unreported = int(figures["updates"])
