"""One update over a meta-batch: encoder, critics, behaviour regularisation, policy, targets."""

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from ray.rllib.core import DEFAULT_MODULE_ID
from torch import Tensor

from interreplay.algorithms.learner import OffPolicyLearner
from interreplay.focal.bank import Layout
from interreplay.focal.encoder import Posterior
from interreplay.focal.settings import AlgoParams
from interreplay.focal.task_inference import encoder_loss

ROWS, CONTEXT, TASK = "rows", "context", "task"


class Transitions(NamedTuple):
    """The rows of all tasks of a meta-batch, one task after the other: n = tasks * batch_size.

    Attributes:
        states: (s, z) `[n, o + latent]`, z without gradient.
        actions, next_actions: `[n, a]`; the next action counts where `follows` `[n]` is 1.
        rewards: `[n]`, scaled.
        next_states: (s', z) `[n, o + latent]`, z without gradient.
        alive: `[n]`, 0 where s' is terminal; a time limit is not.
    """

    states: Tensor
    actions: Tensor
    rewards: Tensor
    next_states: Tensor
    alive: Tensor
    next_actions: Tensor
    follows: Tensor


class MetaLearner(OffPolicyLearner):
    """What FOCAL's and Contextual BCQ's learners share: the meta-batch and the encoder's step.

    A minibatch is a meta-batch of M tasks: `rows` `[M, B, width]` (see `bank.Layout`), `context`
    `[M, C, K, seen]` (C contexts of K transitions for each task) and `task` `[M]`.
    """

    def build(self) -> None:
        super().build()
        self._layout = Layout(*self.net.dimensions)
        self._shown: dict[str, Tensor] = {}

    @property
    def algo(self) -> AlgoParams:
        """The algorithm's settings."""
        algo: AlgoParams = self.config.settings.algo_params
        return algo

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        encoder = list(self.net.encoder.parameters())
        if self.algo.task_inference == "supervised":
            encoder += self.net.classifier.parameters()
        self._adam("encoder", encoder, self.algo.context_lr)
        self._adam("critic", self.net.critics.parameters(), self.algo.qf_lr)

    @abstractmethod
    def actor_critic_step(self, rows: Transitions, z: Tensor, inference_loss: Tensor) -> Tensor:
        """Update everything behind z `[n, latent]`, which carries the encoder's gradient.

        Returns:
            |TD error| `[n]`.
        """

    def update_minibatch(self, batch: dict[str, Tensor]) -> Tensor:
        """One update; returns each task's mean |TD error| `[M]`."""
        posterior = self.net.encoder(batch[CONTEXT])
        z = posterior.mean
        if self.algo.use_information_bottleneck:
            z = posterior.draw(self._noise(posterior.mean))
        loss = encoder_loss(self.net, self.algo, posterior, z, batch[TASK])
        # The first of a task's contexts conditions its policy, as the one context will in a test.
        count = batch[ROWS].shape[1]
        repeated = z[:, 0].repeat_interleave(count, 0)
        rows = self.transitions(batch[ROWS], repeated.detach())
        if not self.algo.allow_backward_z:
            self._descend_together(loss, "encoder")
            repeated = repeated.detach()
        td_errors = self.actor_critic_step(rows, repeated, loss)
        self._record(**{"Z Loss": loss})
        self._show_z(posterior)
        return td_errors.view(-1, count).mean(-1)

    def transitions(self, rows: Tensor, z: Tensor) -> Transitions:
        """Rows `[M, B, width]` by name, side by side with z `[M * B, latent]`."""
        parts = rows.flatten(0, 1).split(self._layout.sizes, -1)
        obs, actions, _, new_obs, rewards, terminated, next_actions, follows = parts
        return Transitions(
            torch.cat([obs, z], -1),
            actions,
            self.algo.reward_scale * rewards.squeeze(-1),
            torch.cat([new_obs, z], -1),
            1.0 - terminated.squeeze(-1),
            next_actions,
            follows.squeeze(-1),
        )

    def critic_step(
        self, rows: Transitions, z: Tensor, inference_loss: Tensor, target: Tensor
    ) -> Tensor:
        """Fit both Q functions to a target `[n]`; coupled, the encoder follows, too.

        Returns:
            |TD error| `[n]`.
        """
        states = rows.states
        coupled = self.algo.allow_backward_z
        if coupled:
            states = torch.cat([states[:, : self._layout.obs_dim], z], -1)
        values = self.net.critics(states, rows.actions)
        errors = values - target
        loss = (errors**2).mean(-1).sum()
        if coupled:
            self._descend_together(loss + inference_loss, "critic", "encoder")
        else:
            self._descend_together(loss, "critic")
        self._record(**{"QF Loss": loss})
        self._show(**{"Q Predictions": values[0]})
        return errors.detach().abs().mean(0)

    def _descend_together(self, loss: Tensor, *names: str) -> None:
        """One step of several optimizers on one loss, from one backward pass.

        A parameter that the loss doesn't reach has gradient zero.
        """
        optimizers = [self.get_optimizer(DEFAULT_MODULE_ID, name) for name in names]
        parameters = [p for optimizer in optimizers for p in optimizer.members]
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            if gradient is None:
                parameter.grad.zero_()
            else:
                parameter.grad.copy_(gradient)
        for name in names:
            self._step(name)

    # -- figures: tensors of the last update, read once per report -------------------------------

    def _show(self, **figures: Tensor) -> None:
        self._shown |= {name: value.detach() for name, value in figures.items()}

    def _show_z(self, posterior: Posterior) -> None:
        means = posterior.mean[:, 0].detach().mean(0)
        variance = posterior.variance[:, 0].detach().mean()
        self._shown |= {"Z mean train": means, "Z variance train": variance}

    def report(self) -> dict[str, float]:
        """The old code's figures: losses are means since the last call, the rest the last update's.

        Raises:
            UsageError: a loss is not finite, so training has diverged.
        """
        figures = super().report()
        shown, self._shown = self._shown, {}
        for name, values in shown.items():
            if name == "Z mean train":
                figures |= {f"{name}{i}": v for i, v in enumerate(values.tolist())}
            elif name == "Z variance train":
                figures[name] = values.item()
            else:
                figures |= {f"{name} {which}": v for which, v in summary(values)}
        return figures


def summary(values: Tensor) -> Iterable[tuple[str, float]]:
    """Mean, standard deviation (of all, not of a sample), largest and smallest."""
    parts = [values.mean(), values.std(correction=0), values.max(), values.min()]
    return zip(("Mean", "Std", "Max", "Min"), torch.stack(parts).tolist(), strict=True)
