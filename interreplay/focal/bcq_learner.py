"""Contextual BCQ: batch-constrained Q-learning on (s, z); the Bellman loss trains the encoder."""

from typing import Any

import torch
from torch import Tensor

from interreplay.focal.learner import MetaLearner, Transitions

_SMALLER = 0.75  # the smaller Q's share in the soft minimum
_CANDIDATES = 10
_CLIP = 0.5


class ContextualBCQLearner(MetaLearner):
    """One update of BCQ (Fujimoto et al. 2019, arXiv 1812.02900, algorithm 1) for every task."""

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        super().configure_optimizers_for_module(module_id, config)
        self._adam("generator", self.net.generator.parameters(), self.algo.policy_lr)
        self._adam("policy", self.net.perturbation.parameters(), self.algo.policy_lr)

    def targets(self) -> list[tuple[torch.nn.Module, torch.nn.Module]]:
        net = self.net
        return [
            (net.target_critics, net.critics),
            (net.target_perturbation, net.perturbation),
        ]

    def actor_critic_step(self, rows: Transitions, z: Tensor, inference_loss: Tensor) -> Tensor:
        net = self.net
        like_latents = rows.actions.repeat(1, 2)
        imitation = net.generator.loss(rows.states, rows.actions, self._noise(like_latents))
        self._descend_together(imitation, "generator")

        target = self.bellman_q_target(rows)
        td_errors = self.critic_step(rows, z, inference_loss, target)

        latents = self._noise(like_latents).clamp_(-_CLIP, _CLIP)
        with torch.no_grad():
            generated = net.generator.decode(rows.states, latents)
        loss = -net.critics.first(rows.states, net.perturbation(rows.states, generated)).mean()
        self._descend_together(loss, "policy")
        self._move_targets()
        self._record(**{"Policy Loss": loss, "Generator Loss": imitation})
        return td_errors

    @torch.no_grad()
    def bellman_q_target(self, rows: Transitions) -> Tensor:
        """r + gamma (1 - terminated) max over ten candidates of the soft minimum of both target Qs.

        Shape `[n]` (BCQ, eq. 13 and 14).
        """
        net = self.net
        states = rows.next_states[:, None].expand(-1, _CANDIDATES, -1)
        shape = (*states.shape[:2], net.generator.latent)
        latents = torch.randn(shape, device=self._device, generator=self._generator)
        generated = net.generator.decode(states, latents.clamp_(-_CLIP, _CLIP))
        actions = net.target_perturbation(states, generated)
        values = net.target_critics(states.flatten(0, 1), actions.flatten(0, 1))
        soft = _SMALLER * values.amin(0) + (1.0 - _SMALLER) * values.amax(0)
        best = soft.view(len(states), -1).amax(-1)
        return rows.rewards + self.algo.discount * rows.alive * best
