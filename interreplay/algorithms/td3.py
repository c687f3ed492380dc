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

    def build(self) -> None:
        super().build()
        net = self.net
        self._passes_of: list[Any] = [
            self._passes(net.policy.net),
            self._passes(net.target_policy.net),
            self._passes(net.critics),
            self._passes(net.target_critics),
            self._passes(net.critics, 0),
        ]

    def update_minibatch(self, batch: dict[str, Tensor]) -> Tensor:
        written = None not in self._passes_of
        if written:
            critic_loss, td_errors = self.written_critic_step(batch)
        else:
            critic_loss, td_errors = self.critic_loss(batch)
            self._descend("critic", critic_loss)
        self._record(critic_loss=critic_loss, td_error=td_errors.mean())
        if (self._updates_lifetime + 1) % self.config.policy_delay == 0:
            if written:
                actor_loss = self.written_actor_step(batch)
            else:
                actor_loss = self.actor_loss(batch)
                self._descend("actor", actor_loss)
            self._move_targets()
            self._record(actor_loss=actor_loss)
        return td_errors

    @torch.no_grad()
    def written_critic_step(self, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """The step of `critic_loss` with its gradient written out; loss and |TD error| `[B]`."""
        _, target_policy, critics, target_critics, _ = self._passes_of
        new_obs = batch[Columns.NEXT_OBS]
        actions = self.smoothed(target_policy.forward(new_obs).tanh())
        next_values = target_critics.forward(torch.cat([new_obs, actions], -1)).squeeze(-1)
        target = self.bellman_target(batch, next_values.amin(0))
        taken = torch.cat([batch[Columns.OBS], batch[Columns.ACTIONS]], -1)
        values = critics.forward(taken).squeeze(-1)
        loss, td_errors, gradient = self.critic_regression(values, target, batch[WEIGHTS])
        critics.backward(gradient[..., None])
        self._step("critic")
        return loss, td_errors

    @torch.no_grad()
    def written_actor_step(self, batch: dict[str, Tensor]) -> Tensor:
        """The step of `actor_loss` with its gradient written out; the loss."""
        policy, _, _, _, first_critic = self._passes_of
        obs = batch[Columns.OBS]
        actions = policy.forward(obs).tanh()
        values = first_critic.forward(torch.cat([obs, actions], -1))
        by_value = torch.full_like(values, -1.0 / len(obs))
        by_action = first_critic.backward(by_value, parameters=False, inputs=True)
        policy.backward(by_action[:, obs.shape[1] :] * (1 - actions**2))
        self._step("actor")
        return -values.mean()

    def smoothed(self, actions: Tensor) -> Tensor:
        """Target policy smoothing (eq. 14): clipped noise on the target policy's actions."""
        if self.config.target_noise == 0:
            return actions
        clip = self.config.target_noise_clip
        noise = self.config.target_noise * self._noise(actions)
        return (actions + noise.clamp_(-clip, clip)).clamp_(-1.0, 1.0)

    def critic_loss(self, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Clipped double Q with target policy smoothing (eq. 10 and 14); with |TD error| `[B]`."""
        with torch.no_grad():
            new_obs = batch[Columns.NEXT_OBS]
            actions = self.smoothed(self.net.target_policy(new_obs))
            target = self.bellman_target(batch, self.net.target_critics(new_obs, actions).amin(0))
        values = self.net.critics(batch[Columns.OBS], batch[Columns.ACTIONS])
        return self.critic_regression(values, target, batch[WEIGHTS])[:2]

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
