"""Soft actor-critic with learned temperature (Haarnoja et al. 2018, arXiv 1812.05905)."""

from typing import Any

import torch
from ray.rllib.core.columns import Columns
from torch import Tensor

from interreplay.algorithms.config import OffPolicyConfig
from interreplay.algorithms.learner import WEIGHTS, OffPolicyLearner
from interreplay.algorithms.modules import SACModule
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

    def update_minibatch(self, batch: dict[str, Tensor]) -> Tensor:
        alpha = self.net.log_alpha.detach().exp()

        critic_loss, td_errors = self.critic_loss(batch, alpha)
        self._descend("critic", critic_loss)

        actor_loss, log_density = self.actor_loss(batch, alpha)
        self._descend("actor", actor_loss)

        alpha_loss = self.alpha_loss(log_density)
        self._descend("alpha", alpha_loss)

        self._move_targets()
        self._record(
            critic_loss=critic_loss,
            actor_loss=actor_loss,
            alpha=alpha,
            entropy=-log_density.mean(),
            td_error=td_errors.mean(),
        )
        return td_errors

    def critic_loss(self, batch: dict[str, Tensor], alpha: Tensor) -> tuple[Tensor, Tensor]:
        """J_Q (eq. 5) and the |TD error| `[B]`: see `critic_regression`."""
        with torch.no_grad():
            new_obs = batch[Columns.NEXT_OBS]
            like_actions = batch[Columns.ACTIONS]
            actions, log_density = self.net.policy.sample(new_obs, self._noise(like_actions))
            soft_value = self.net.target_critics(new_obs, actions).amin(0) - alpha * log_density
            target = self.bellman_target(batch, soft_value)
        values = self.net.critics(batch[Columns.OBS], batch[Columns.ACTIONS])
        return self.critic_regression(values, target, batch[WEIGHTS])

    def actor_loss(self, batch: dict[str, Tensor], alpha: Tensor) -> tuple[Tensor, Tensor]:
        """J_pi (eq. 7) with the smaller of the two critics; also log pi `[B]`, detached."""
        obs = batch[Columns.OBS]
        actions, log_density = self.net.policy.sample(obs, self._noise(batch[Columns.ACTIONS]))
        values = self.net.critics(obs, actions).amin(0)
        return (alpha * log_density - values).mean(), log_density.detach()

    def alpha_loss(self, log_density: Tensor) -> Tensor:
        """J(alpha) (eq. 18), in log alpha so that the temperature stays positive."""
        return -self.net.log_alpha * (log_density + self._target_entropy).mean()


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
