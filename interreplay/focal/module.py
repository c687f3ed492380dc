"""What learns and what acts, as RLlib modules: encoder, policy, values, regularisers."""

from collections.abc import Sequence
from typing import Any

import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import InferenceOnlyAPI
from ray.rllib.core.rl_module.torch import TorchRLModule
from torch import Tensor, nn

from interreplay.algorithms.modules import MLP, Critics
from interreplay.focal.encoder import ContextEncoder
from interreplay.focal.networks import Generator, Perturbation, TaskPolicy
from interreplay.focal.settings import FocalSettings

Z = "z"
_CANDIDATES, _PHI = 10, 0.05


def hidden_sizes(settings: FocalSettings) -> tuple[int, ...]:
    """Three layers of net_size."""
    return (settings.net_size,) * 3


class MetaModule(TorchRLModule, InferenceOnlyAPI):
    """What both learners share: an encoder, twin critics with targets, actions from (s, z).

    `model_config`: `settings` (a `FocalSettings`) and `train_tasks` (how many).

    Batches for inference hold `obs` `[n, o]` (already divided by the data's scale) and, unless the
    prior's zero is wanted, `z` `[n, latent]`.
    """

    @property
    def settings(self) -> FocalSettings:
        """The run's configuration."""
        settings: FocalSettings = self.model_config["settings"]
        return settings

    @property
    def dimensions(self) -> tuple[int, int]:
        """Sizes of observation and action."""
        return self.observation_space.shape[0], self.action_space.shape[0]

    def setup(self) -> None:
        settings, algo = self.settings, self.settings.algo_params
        (obs_dim, action_dim), latent = self.dimensions, settings.latent_size
        seen = obs_dim + action_dim + 1 + (obs_dim if algo.use_next_obs_in_context else 0)
        hidden = hidden_sizes(settings)
        self.encoder = ContextEncoder(seen, latent, bottleneck=algo.use_information_bottleneck)
        self.build_actor(obs_dim + latent, action_dim, hidden)
        self.critics = Critics(obs_dim + latent + action_dim, hidden)
        if not self.inference_only:
            if algo.value == "q":
                self.target_critics = twin(self.critics, obs_dim + latent + action_dim, hidden)
            if algo.task_inference == "supervised":
                self.classifier = nn.Linear(latent, self.model_config["train_tasks"])
            self.build_regularisers(obs_dim + latent, action_dim, hidden)

    def build_actor(self, inputs: int, action_dim: int, hidden: Sequence[int]) -> None:
        """The networks that `act` needs, for (s, z) of `inputs` dimensions."""
        raise NotImplementedError

    def build_regularisers(self, inputs: int, action_dim: int, hidden: Sequence[int]) -> None:
        """What only learning needs."""

    def act(self, states: Tensor, noise: Tensor | None = None) -> Tensor:
        """Actions `[n, a]` from (s, z) `[n, o + latent]`, deterministic without noise `[n, a]`."""
        raise NotImplementedError

    def get_non_inference_attributes(self) -> list[str]:
        names = ("target_critics", "classifier", "value", "target_value", "dual", "clone", "alpha")
        return [name for name in names if hasattr(self, name)]

    def _states(self, batch: dict[str, Any]) -> Tensor:
        obs = batch[Columns.OBS]
        z = batch.get(Z)
        if z is None:
            z = torch.zeros(len(obs), self.settings.latent_size, device=obs.device)
        return torch.cat([obs, z], -1)

    def _forward_inference(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        with torch.inference_mode():
            return {Columns.ACTIONS: self.act(self._states(batch))}

    def _forward_exploration(
        self, batch: dict[str, Any], generator: torch.Generator | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        states = self._states(batch)
        with torch.inference_mode():
            shape = (len(states), self.dimensions[1])
            noise = torch.randn(shape, device=states.device, generator=generator)
            return {Columns.ACTIONS: self.act(states, noise)}


class FocalModule(MetaModule):
    """FOCAL's and PEARL's: a Gaussian policy; where asked for a V network and BRAC's networks."""

    def build_actor(self, inputs: int, action_dim: int, hidden: Sequence[int]) -> None:
        self.policy = TaskPolicy(inputs, action_dim, hidden)

    def build_regularisers(self, inputs: int, action_dim: int, hidden: Sequence[int]) -> None:
        algo = self.settings.algo_params
        if algo.value == "v":
            self.value = MLP(inputs, hidden, 1)
            self.target_value = MLP(inputs, hidden, 1).requires_grad_(False)
            self.target_value.load_state_dict(self.value.state_dict())
        if algo.use_brac:
            self.alpha = nn.Parameter(torch.tensor(algo.alpha_init))
            if algo.divergence_name == "mmd":
                self.clone = TaskPolicy(inputs, action_dim, hidden)
            else:
                self.dual = MLP(inputs + action_dim, hidden, 1)

    def act(self, states: Tensor, noise: Tensor | None = None) -> Tensor:
        return self.policy.act(states, noise)


class ContextualBCQModule(MetaModule):
    """Contextual BCQ's: the best of ten generated, slightly perturbed actions.

    The ten latents are drawn once and kept, so that acting without noise is deterministic.
    """

    def build_actor(self, inputs: int, action_dim: int, hidden: Sequence[int]) -> None:
        self.generator = Generator(inputs, action_dim, hidden)
        self.perturbation = Perturbation(inputs, action_dim, hidden, _PHI)
        self.target_perturbation = Perturbation(inputs, action_dim, hidden, _PHI)
        self.target_perturbation.load_state_dict(self.perturbation.state_dict())
        self.target_perturbation.requires_grad_(False)
        latents = torch.randn(_CANDIDATES, self.generator.latent).clamp_(-0.5, 0.5)
        self.register_buffer("latents", latents)

    def candidates(self, states: Tensor, latents: Tensor) -> Tensor:
        """Generated actions `[n, k, a]` from (s, z) `[n, inputs]` and latents `[n, k, 2 a]`."""
        repeated = states[:, None].expand(-1, latents.shape[1], -1)
        return self.generator.decode(repeated, latents)

    def act(self, states: Tensor, noise: Tensor | None = None) -> Tensor:
        """As `MetaModule.act`; noise shifts the latents, each dimension of the action two."""
        latents = self.latents.expand(len(states), -1, -1)
        if noise is not None:
            latents = (latents + noise.repeat(1, 2)[:, None]).clamp(-0.5, 0.5)
        repeated = states[:, None].expand(-1, latents.shape[1], -1)
        actions = self.perturbation(repeated, self.generator.decode(repeated, latents))
        values = self.critics.first(repeated.flatten(0, 1), actions.flatten(0, 1))
        best = values.view(len(states), -1).argmax(-1)
        return actions[torch.arange(len(states), device=best.device), best]


def twin(critics: Critics, inputs: int, hidden: Sequence[int]) -> Critics:
    """A copy that gradients leave alone."""
    target = Critics(inputs, hidden).requires_grad_(False)
    target.load_state_dict(critics.state_dict())
    return target
