"""Soft actor-critic on (s, z), kept near the behaviour: FOCAL's learner and Batch PEARL's."""

from typing import Any

import torch
from torch import Tensor

from interreplay.algorithms.modules import squash
from interreplay.focal.divergences import (
    DUALS,
    MMD_SAMPLES,
    action_gradient,
    mmd,
    slope_penalty,
)
from interreplay.focal.learner import MetaLearner, Transitions


class FocalLearner(MetaLearner):
    """One update: encoder, dual critic, Q (and V), policy, alpha, targets.

    z carries no gradient past the encoder's own loss, except into the Bellman loss when
    `allow_backward_z` couples them.
    """

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        super().configure_optimizers_for_module(module_id, config)
        algo, net = self.algo, self.net
        self._adam("policy", net.policy.parameters(), algo.policy_lr)
        if algo.value == "v":
            self._adam("value", net.value.parameters(), algo.vf_lr)
        if algo.use_brac:
            critic = net.clone if algo.divergence_name == "mmd" else net.dual
            self._adam("behaviour", critic.parameters(), algo.c_lr)
            self._adam("alpha", [net.alpha], algo.alpha_lr)

    def targets(self) -> list[tuple[torch.nn.Module, torch.nn.Module]]:
        if self.algo.value == "v":
            return [(self.net.target_value, self.net.value)]
        return [(self.net.target_critics, self.net.critics)]

    def actor_critic_step(self, rows: Transitions, z: Tensor, inference_loss: Tensor) -> Tensor:
        mean, log_std = self.net.policy(rows.states)
        actions, log_pi = squash(mean, log_std, self._noise(mean))
        if self.algo.use_brac:
            for _ in range(self.algo.c_iter):
                self.behaviour_step(rows, actions.detach())

        target = self.bellman_q_target(rows)
        td_errors = self.critic_step(rows, z, inference_loss, target)
        if self.algo.value == "v":
            self.value_step(rows, actions.detach(), log_pi.detach())

        loss, divergence = self.policy_loss(rows, mean, log_std, actions, log_pi)
        self._descend_together(loss, "policy")
        if divergence is not None:
            self.alpha_step(divergence)
        self._move_targets()
        self._record(**{"Policy Loss": loss})
        self._show(**{"Log Pis": log_pi, "Policy mu": mean, "Policy log std": log_std})
        return td_errors

    # -- behaviour regularisation ----------------------------------------------------------------

    def behaviour_step(self, rows: Transitions, policy_actions: Tensor) -> None:
        """One step of the dual critic, or (MMD) of the behaviour-cloned policy."""
        if self.algo.divergence_name == "mmd":
            loss = -self.net.clone.log_density(rows.states, rows.actions).mean()
        else:
            loss = self.dual_critic_loss(rows, policy_actions)
        self._descend_together(loss, "behaviour")
        self._record(**{"Dual Critic Loss": loss})

    def dual_critic_loss(self, rows: Transitions, policy_actions: Tensor) -> Tensor:
        """-E[D] and the gradient penalty: the critic makes the divergence as large as it can."""
        estimate = self.dual_estimate(rows.states, rows.actions, policy_actions).mean()
        mix = torch.rand(len(rows.states), 1, device=self._device, generator=self._generator)
        mixed = torch.lerp(rows.actions, policy_actions, mix)
        return slope_penalty(action_gradient(self.net.dual, rows.states, mixed)) - estimate

    def dual_estimate(self, states: Tensor, behaviour: Tensor, policy: Tensor) -> Tensor:
        """D(pi, b) `[n]` by the dual critic, from one action of either side per row."""
        actions = torch.cat([behaviour, policy])
        inputs = torch.cat([states.repeat(2, 1), actions], -1)
        of_behaviour, of_policy = self.net.dual(inputs).squeeze(-1).chunk(2)
        return DUALS[self.algo.divergence_name](of_behaviour, of_policy)

    def divergence(self, states: Tensor, behaviour: Tensor, policy: Tensor) -> Tensor:
        """D(pi, b) `[n]`; for MMD from samples of the policy and of the cloned one."""
        if self.algo.divergence_name != "mmd":
            # Only the policy's side has a gradient here.
            with torch.no_grad():
                of_behaviour = self.net.dual(torch.cat([states, behaviour], -1)).squeeze(-1)
            of_policy = self.net.dual(torch.cat([states, policy], -1)).squeeze(-1)
            return DUALS[self.algo.divergence_name](of_behaviour, of_policy)
        repeated = states[:, None].expand(-1, MMD_SAMPLES, -1)
        shape = (*repeated.shape[:2], behaviour.shape[-1])
        noise = torch.randn(2, *shape, device=self._device, generator=self._generator)
        with torch.no_grad():
            cloned = self.net.clone.act(repeated, noise[0])
        return mmd(self.net.policy.act(repeated, noise[1]), cloned)

    def alpha_step(self, divergence: Tensor) -> None:
        """alpha grows while D exceeds its target and is clamped where it is stored."""
        alpha = self.net.alpha
        if self.algo.train_alpha:
            alpha.grad.copy_(self.algo.target_divergence - divergence.detach().mean())
            self._step("alpha")
            alpha.data.clamp_(0.0, self.algo.alpha_max)
        self._show(alpha=alpha.reshape(1).clone(), div_estimate=divergence)

    # -- values ------------------------------------------------------------------------------------

    @torch.no_grad()
    def bellman_q_target(self, rows: Transitions) -> Tensor:
        """r + gamma (1 - terminated) V(s') `[n]`.

        V is the target V network, or the smaller target Q at an action of the policy plus its
        entropy. The value penalty alpha D belongs to s', against the data's own next action, and
        is left out where the episode's end has none.
        """
        algo = self.algo
        if algo.value == "v" and not algo.use_value_penalty:
            values = self.net.target_value(rows.next_states).squeeze(-1)
            return rows.rewards + algo.discount * rows.alive * values
        mean, log_std = self.net.policy(rows.next_states)
        next_actions, log_pi = squash(mean, log_std, self._noise(mean))
        if algo.value == "v":
            values = self.net.target_value(rows.next_states).squeeze(-1)
        else:
            values = self.net.target_critics(rows.next_states, next_actions).amin(0)
            if algo.max_entropy:
                values = values - log_pi
        if algo.use_value_penalty:
            far = self.divergence(rows.next_states, rows.next_actions, next_actions)
            values = values - self.net.alpha * far * rows.follows
        return rows.rewards + algo.discount * rows.alive * values

    def value_step(self, rows: Transitions, actions: Tensor, log_pi: Tensor) -> None:
        """V(s) -> min Q(s, a) - log pi(a | s), a from the policy (the paper's V network)."""
        with torch.no_grad():
            target = self.net.critics(rows.states, actions).amin(0)
            if self.algo.max_entropy:
                target = target - log_pi
        values = self.net.value(rows.states).squeeze(-1)
        loss = ((values - target) ** 2).mean()
        self._descend_together(loss, "value")
        self._record(**{"VF Loss": loss})
        self._show(**{"V Predictions": values})

    # -- policy ------------------------------------------------------------------------------------

    def policy_loss(
        self, rows: Transitions, mean: Tensor, log_std: Tensor, actions: Tensor, log_pi: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """E[alpha D + log pi - min Q] and the penalties on mean^2 and log_std^2 (FOCAL, eq. 7).

        Returns:
            The loss, and D `[n]` (None without BRAC).
        """
        algo = self.algo
        objective = -self.net.critics(rows.states, actions).amin(0)
        if algo.max_entropy:
            objective = objective + log_pi
        divergence = None
        if algo.use_brac:
            divergence = self.divergence(rows.states, rows.actions, actions)
            objective = objective + self.net.alpha.detach() * divergence
        penalty = algo.policy_mean_reg_weight * (mean**2).mean()
        penalty = penalty + algo.policy_std_reg_weight * (log_std**2).mean()
        return objective.mean() + penalty, divergence
