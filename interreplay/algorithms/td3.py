"""Twin delayed DDPG (Fujimoto et al. 2018, arXiv 1802.09477)."""

from typing import Any

import torch
from ray.rllib.core.columns import Columns
from torch import Tensor

from interreplay.algorithms.config import OffPolicyConfig
from interreplay.algorithms.learner import WEIGHTS, OffPolicyLearner
from interreplay.algorithms.modules import DeterministicModule
from interreplay.algorithms.off_policy import OffPolicy


class TD3Learner(OffPolicyLearner):
    """One update: critics; every `policy_delay` updates also the policy and all targets."""

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        self._adam("actor", self.net.policy.parameters(), self.config.actor_lr)
        self._adam("critic", self.net.critics.parameters(), self.config.critic_lr)

    def targets(self) -> list[tuple[torch.nn.Module, torch.nn.Module]]:
        return [
            (self.net.target_critics, self.net.critics),
            (self.net.target_policy, self.net.policy),
        ]

    def update_minibatch(self, batch: dict[str, Tensor]) -> Tensor:
        critic_loss, td_errors = self.critic_loss(batch)
        self._descend("critic", critic_loss)
        self._record(critic_loss=critic_loss, td_error=td_errors.mean())
        if (self._updates_lifetime + 1) % self.config.policy_delay == 0:
            actor_loss = self.actor_loss(batch)
            self._descend("actor", actor_loss)
            self._move_targets()
            self._record(actor_loss=actor_loss)
        return td_errors

    def critic_loss(self, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Clipped double Q with target policy smoothing (eq. 10 and 14); with |TD error| `[B]`."""
        with torch.no_grad():
            new_obs = batch[Columns.NEXT_OBS]
            actions = self.net.target_policy(new_obs)
            if self.config.target_noise > 0:
                clip = self.config.target_noise_clip
                noise = self.config.target_noise * self._noise(actions)
                actions = (actions + noise.clamp_(-clip, clip)).clamp_(-1.0, 1.0)
            target = self.bellman_target(batch, self.net.target_critics(new_obs, actions).amin(0))
        values = self.net.critics(batch[Columns.OBS], batch[Columns.ACTIONS])
        return self.critic_regression(values, target, batch[WEIGHTS])

    def actor_loss(self, batch: dict[str, Tensor]) -> Tensor:
        """-Q_1(s, pi(s)): the deterministic policy gradient goes through the first critic."""
        obs = batch[Columns.OBS]
        return -self.net.critics.first(obs, self.net.policy(obs)).mean()


class TD3(OffPolicy):
    """TD3 as an RLlib `Algorithm`."""

    @classmethod
    def get_default_config(cls) -> "TD3Config":
        return TD3Config()


class TD3Config(OffPolicyConfig):
    """Two 400-300 ReLU critics, Adam 1e-3, delay 2, target noise 0.2 clipped at 0.5."""

    module_class = DeterministicModule
    learner_class = TD3Learner

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or TD3)
        self.hidden_sizes = (400, 300)
        self.actor_lr = 1e-3
        self.critic_lr = 1e-3
        self.tau = 5e-3
        self.huber_loss = False
        self.critic_count = 2
        self.policy_delay = 2
        self.target_noise = 0.2
        self.target_noise_clip = 0.5
        self.exploration: tuple[str | float, ...] = ("gaussian", 0.1)

    def module_settings(self) -> dict[str, Any]:
        return super().module_settings() | {
            "critic_count": self.critic_count,
            "exploration": tuple(self.exploration),
        }
