"""Soft actor-critic with learned temperature (Haarnoja et al. 2018, arXiv 1812.05905)."""

from typing import Any

import torch
from ray.rllib.core.columns import Columns
from torch import Tensor

from interreplay.algorithms.config import OffPolicyConfig
from interreplay.algorithms.learner import WEIGHTS, OffPolicyLearner
from interreplay.algorithms.modules import LOG_STD_MAX, LOG_STD_MIN, SACModule, squash
from interreplay.algorithms.off_policy import OffPolicy


class SACLearner(OffPolicyLearner):
    """One update: critics, policy, temperature, targets."""

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        self._adam("actor", self.net.policy.parameters(), self.config.actor_lr)
        self._adam("critic", self.net.critics.parameters(), self.config.critic_lr)
        self._adam("alpha", [self.net.log_alpha], self.config.alpha_lr)

    def targets(self) -> list[tuple[torch.nn.Module, torch.nn.Module]]:
        return [(self.net.target_critics, self.net.critics)]

    def build(self) -> None:
        super().build()
        target = self.config.target_entropy
        self._target_entropy = -float(self.net.dimensions[1]) if target is None else target
        # Of the policy, the critics and their targets.
        self._passes_of: list[Any] = [
            self._passes(net)
            for net in (self.net.policy.net, self.net.critics, self.net.target_critics)
        ]

    def update_minibatch(self, batch: dict[str, Tensor]) -> Tensor:
        alpha = self.net.log_alpha.detach().exp()
        if None in self._passes_of:
            critic_loss, td_errors = self.critic_loss(batch, alpha)
            self._descend("critic", critic_loss)
            actor_loss, log_density = self.actor_loss(batch, alpha)
            self._descend("actor", actor_loss)
        else:
            critic_loss, td_errors, actor_loss, log_density = self.written_steps(batch, alpha)

        self.net.log_alpha.grad.copy_(self.alpha_gradient(log_density))
        self._step("alpha")

        self._move_targets()
        self._record(
            critic_loss=critic_loss,
            actor_loss=actor_loss,
            alpha=alpha,
            entropy=-log_density.mean(),
            td_error=td_errors.mean(),
        )
        return td_errors

    @torch.no_grad()
    def written_steps(
        self, batch: dict[str, Tensor], alpha: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The critics' and the policy's step with gradients written out instead of recorded.

        The same losses as `critic_loss` and `actor_loss`, which the tests hold this against;
        the policy sees obs and new_obs in one product, since it moves after both are needed.

        Returns:
            Critic loss, |TD error| `[B]`, actor loss, log pi `[B]`.
        """
        policy = self._passes_of[0]
        obs, new_obs = batch[Columns.OBS], batch[Columns.NEXT_OBS]
        count = len(obs)
        mean, raw_log_std = policy.forward(torch.cat([obs, new_obs])).chunk(2, -1)
        following = mean[count:], raw_log_std[count:].clamp(LOG_STD_MIN, LOG_STD_MAX)
        critic_loss, td_errors = self._written_critic_step(batch, alpha, *following)
        actor_loss, log_density = self._written_actor_step(
            obs, alpha, mean[:count], raw_log_std[:count]
        )
        return critic_loss, td_errors, actor_loss, log_density

    def _written_critic_step(
        self, batch: dict[str, Tensor], alpha: Tensor, mean: Tensor, log_std: Tensor
    ) -> tuple[Tensor, Tensor]:
        """From what the policy says of new_obs: the loss, and |TD error| `[B]`."""
        _, critics, target_critics = self._passes_of
        obs, new_obs, taken = (
            batch[name] for name in (Columns.OBS, Columns.NEXT_OBS, Columns.ACTIONS)
        )
        actions, log_density = squash(mean, log_std, self._noise(taken))
        next_values = target_critics.forward(torch.cat([new_obs, actions], -1)).squeeze(-1)
        target = self.bellman_target(batch, next_values.amin(0) - alpha * log_density)
        values = critics.forward(torch.cat([obs, taken], -1)).squeeze(-1)
        critic_loss, td_errors, gradient = self.critic_regression(values, target, batch[WEIGHTS])
        critics.backward(gradient[..., None])
        self._step("critic")
        return critic_loss, td_errors

    def _written_actor_step(
        self, obs: Tensor, alpha: Tensor, mean: Tensor, raw_log_std: Tensor
    ) -> tuple[Tensor, Tensor]:
        """From what the policy says of obs: the loss, and log pi `[B]`."""
        policy, critics, _ = self._passes_of
        count, obs_dim = obs.shape
        log_std = raw_log_std.clamp(LOG_STD_MIN, LOG_STD_MAX)
        noise = self._noise(mean)
        actions, log_density = squash(mean, log_std, noise)
        values = critics.forward(torch.cat([obs, actions], -1))
        smaller, which = values.min(0, keepdim=True)
        actor_loss = (alpha * log_density - smaller.squeeze()).mean()

        by_value = torch.zeros_like(values).scatter_(0, which, -1.0 / count)
        by_action = critics.backward(by_value, parameters=False, inputs=True)
        by_action = by_action[..., obs_dim:].sum(0)
        # d log pi / du = 2 tanh(u) and d tanh(u) / du = 1 - tanh(u)^2, u = mean + std * noise.
        share = alpha / count
        by_u = 2 * share * actions + by_action * (1 - actions**2)
        by_log_std = by_u * log_std.exp() * noise - share
        by_log_std *= raw_log_std == log_std  # no gradient through the clamp
        policy.backward(torch.cat([by_u, by_log_std], -1))
        self._step("actor")
        return actor_loss, log_density

    def critic_loss(self, batch: dict[str, Tensor], alpha: Tensor) -> tuple[Tensor, Tensor]:
        """J_Q (eq. 5) and the |TD error| `[B]`: see `critic_regression`."""
        with torch.no_grad():
            new_obs = batch[Columns.NEXT_OBS]
            like_actions = batch[Columns.ACTIONS]
            actions, log_density = self.net.policy.sample(new_obs, self._noise(like_actions))
            soft_value = self.net.target_critics(new_obs, actions).amin(0) - alpha * log_density
            target = self.bellman_target(batch, soft_value)
        values = self.net.critics(batch[Columns.OBS], batch[Columns.ACTIONS])
        return self.critic_regression(values, target, batch[WEIGHTS])[:2]

    def actor_loss(self, batch: dict[str, Tensor], alpha: Tensor) -> tuple[Tensor, Tensor]:
        """J_pi (eq. 7) with the smaller of the two critics; also log pi `[B]`, detached."""
        obs = batch[Columns.OBS]
        actions, log_density = self.net.policy.sample(obs, self._noise(batch[Columns.ACTIONS]))
        values = self.net.critics(obs, actions).amin(0)
        return (alpha * log_density - values).mean(), log_density.detach()

    def alpha_gradient(self, log_density: Tensor) -> Tensor:
        """d J(alpha) / d log alpha, J = -log alpha E[log pi + target entropy] (eq. 18).

        In log alpha, so that the temperature stays positive.
        """
        return -(log_density + self._target_entropy).mean()


class SAC(OffPolicy):
    """SAC as an RLlib `Algorithm`."""

    @classmethod
    def get_default_config(cls) -> "SACConfig":
        return SACConfig()


class SACConfig(OffPolicyConfig):
    """Settings of the SAC paper: two 256-256 ReLU critics, Adam 3e-4, temperature from 1.0."""

    module_class = SACModule
    learner_class = SACLearner

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or SAC)
        self.actor_lr = 3e-4
        self.critic_lr = 3e-4
        self.alpha_lr = 3e-4
        self.tau = 5e-3
        self.initial_alpha = 1.0
        self.target_entropy: float | None = None
        self.huber_loss = False

    def module_settings(self) -> dict[str, Any]:
        return super().module_settings() | {"initial_alpha": self.initial_alpha}
