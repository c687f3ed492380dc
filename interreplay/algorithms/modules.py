"""The networks: plain MLPs, a pair of critics in one product, a squashed Gaussian policy."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import InferenceOnlyAPI
from ray.rllib.core.rl_module.torch import TorchRLModule
from torch import Tensor, nn
from torch.nn import functional as F

# tanh saturates beyond these: e^-20 is a deterministic policy, e^2 covers the box many times over.
LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0


class MLP(nn.Sequential):
    """Linear and ReLU layers, the last one linear."""

    def __init__(self, inputs: int, hidden: Sequence[int], outputs: int) -> None:
        sizes = [inputs, *hidden]
        layers: list[nn.Module] = []
        for size, following in itertools.pairwise(sizes):
            layers += [nn.Linear(size, following), nn.ReLU()]
        super().__init__(*layers, nn.Linear(sizes[-1], outputs))


class Critics(nn.Module):
    """`count` independent Q functions, each layer one batched matrix product over all of them.

    Weights are `[count, in, out]`; the initialisation is that of `nn.Linear`, per critic.
    """

    def __init__(self, inputs: int, hidden: Sequence[int], count: int = 2) -> None:
        super().__init__()
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        sizes = [inputs, *hidden, 1]
        for size, following in itertools.pairwise(sizes):
            layers = [nn.Linear(size, following) for _ in range(count)]
            self.weights.append(torch.stack([layer.weight.detach().T for layer in layers]))
            self.biases.append(torch.stack([layer.bias.detach()[None] for layer in layers]))

    def forward(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Q values `[count, B]` of obs `[B, o]` and actions `[B, a]`."""
        x = torch.cat([obs, actions], -1).expand(len(self.weights[0]), -1, -1)
        last = len(self.weights) - 1
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = torch.baddbmm(bias, x, weight)
            if layer < last:
                x = x.relu_()
        return x.squeeze(-1)

    def first(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Q values `[B]` of the first critic alone."""
        x = torch.cat([obs, actions], -1)
        last = len(self.weights) - 1
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = torch.addmm(bias[0], x, weight[0])
            if layer < last:
                x = x.relu_()
        return x.squeeze(-1)


def squash(mean: Tensor, log_std: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """tanh(u) `[B, a]` and its log density `[B]`, u = mean + std * noise.

    log(1 - tanh(u)^2) is written as 2 (log 2 - u - softplus(-2u)): it stays finite where
    tanh(u) rounds to 1 (eq. 26 of the SAC paper, evaluated without the subtraction).
    """
    u = mean + log_std.exp() * noise
    log_normal = -0.5 * (noise**2 + math.log(2 * math.pi)) - log_std
    log_volume = 2 * (math.log(2) - u - F.softplus(-2 * u))
    return torch.tanh(u), (log_normal - log_volume).sum(-1)


class SquashedGaussianPolicy(nn.Module):
    """a = tanh(u), u ~ N(mean(s), std(s)) (SAC, arXiv 1812.05905, appendix C)."""

    def __init__(self, obs_dim: int, action_dim: int, hidden: Sequence[int]) -> None:
        super().__init__()
        self.net = MLP(obs_dim, hidden, 2 * action_dim)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log standard deviation of u, both `[B, a]`."""
        mean, log_std = self.net(obs).chunk(2, -1)
        return mean, log_std.clamp(LOG_STD_MIN, LOG_STD_MAX)

    def act(self, obs: Tensor) -> Tensor:
        """The mode of u, squashed: the deterministic action."""
        return torch.tanh(self(obs)[0])

    def sample(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Reparameterised actions `[B, a]` and their log density `[B]`, from noise ~ N(0, 1)."""
        mean, log_std = self(obs)
        return squash(mean, log_std, noise)


class DeterministicPolicy(nn.Module):
    """a = tanh(net(s)) (DDPG, arXiv 1509.02971)."""

    def __init__(self, obs_dim: int, action_dim: int, hidden: Sequence[int]) -> None:
        super().__init__()
        self.net = MLP(obs_dim, hidden, action_dim)

    def forward(self, obs: Tensor) -> Tensor:
        """Actions `[B, a]`."""
        return torch.tanh(self.net(obs))

    act = forward


class OrnsteinUhlenbeck:
    """x <- x + theta (0 - x) + sigma e, e ~ N(0, 1): noise that drifts within an episode.

    One process per environment, back at 0 where an episode starts (DDPG, arXiv 1509.02971, sec. 3).
    """

    def __init__(self, theta: float, sigma: float) -> None:
        self._theta, self._sigma = theta, sigma
        self._state = torch.zeros(0, 0)

    def get_state(self) -> Tensor:
        """The process's value, `[n, a]`."""
        return self._state.clone()

    def set_state(self, state: Tensor) -> None:
        self._state = state.clone()

    def __call__(self, noise: Tensor, starts: Tensor | None) -> Tensor:
        """The next value `[n, a]`, from e `[n, a]` and which of the n environments start anew."""
        if self._state.shape != noise.shape:
            self._state = torch.zeros_like(noise)
        if starts is not None:
            self._state[starts] = 0.0
        self._state = self._state * (1 - self._theta) + self._sigma * noise
        return self._state


class OffPolicyModule(TorchRLModule, InferenceOnlyAPI):
    """What env runners and learners share: a policy in [-1, 1] and uniform random warm-up.

    Warm-up happens here, in policy space, and not through RLlib's `random_actions`, which would
    store actions in the environment's own units beside the policy's.

    `model_config`: `hidden_sizes` (of every network) and `learning_starts` (env steps over all
    env runners during which actions are uniform).
    """

    policy: nn.Module

    @property
    def dimensions(self) -> tuple[int, int]:
        """Sizes of the flat observation and action."""
        return self.observation_space.shape[0], self.action_space.shape[0]

    def noise_state(self) -> Tensor | None:
        """What exploration noise remembers from step to step; None where it remembers nothing."""
        return None

    def set_noise_state(self, state: Tensor | None) -> None:
        """Go on from `noise_state`'s value."""

    def explore(
        self, obs: Tensor, generator: torch.Generator | None, starts: Tensor | None
    ) -> Tensor:
        """Actions `[B, a]` for data collection; each trainer has its own noise.

        `starts` `[B]` bool says which environments are at the start of an episode.
        """
        raise NotImplementedError

    def _forward_inference(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        with torch.inference_mode():
            return {Columns.ACTIONS: self.policy.act(batch[Columns.OBS])}  # type: ignore[operator]

    def _forward_exploration(
        self,
        batch: dict[str, Any],
        t: int | None = None,
        generator: torch.Generator | None = None,
        starts: Tensor | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        obs = batch[Columns.OBS]
        with torch.inference_mode():
            if t is not None and t < self.model_config["learning_starts"]:
                uniform = torch.rand(len(obs), self.dimensions[1], generator=generator)
                return {Columns.ACTIONS: 2 * uniform - 1}
            return {Columns.ACTIONS: self.explore(obs, generator, starts)}


class SACModule(OffPolicyModule):
    """Policy, two critics, their targets, and the logarithm of the temperature."""

    def setup(self) -> None:
        obs_dim, action_dim = self.dimensions
        hidden = self.model_config["hidden_sizes"]
        self.policy: SquashedGaussianPolicy = SquashedGaussianPolicy(obs_dim, action_dim, hidden)
        if not self.inference_only:
            self.critics = Critics(obs_dim + action_dim, hidden)
            self.target_critics = Critics(obs_dim + action_dim, hidden).requires_grad_(False)
            self.target_critics.load_state_dict(self.critics.state_dict())
            initial = math.log(self.model_config["initial_alpha"])
            self.log_alpha = nn.Parameter(torch.tensor(initial, dtype=torch.float32))

    def get_non_inference_attributes(self) -> list[str]:
        return ["critics", "target_critics", "log_alpha"]

    def explore(
        self, obs: Tensor, generator: torch.Generator | None, starts: Tensor | None
    ) -> Tensor:
        noise = torch.randn(len(obs), self.dimensions[1], generator=generator)
        return self.policy.sample(obs, noise)[0]


class DeterministicModule(OffPolicyModule):
    """TD3's and DDPG's: a deterministic policy, one or two critics, and the targets of both.

    `model_config` further: `critic_count`, and `exploration`: ("gaussian", std) or
    ("ou", theta, sigma), in policy space.
    """

    def setup(self) -> None:
        obs_dim, action_dim = self.dimensions
        hidden = self.model_config["hidden_sizes"]
        count = self.model_config["critic_count"]
        kind, *numbers = self.model_config["exploration"]
        self._std = float(numbers[0]) if kind == "gaussian" else 0.0
        self._process = OrnsteinUhlenbeck(*numbers) if kind == "ou" else None
        self.policy: DeterministicPolicy = DeterministicPolicy(obs_dim, action_dim, hidden)
        if not self.inference_only:
            self.critics = Critics(obs_dim + action_dim, hidden, count)
            self.target_policy = DeterministicPolicy(obs_dim, action_dim, hidden)
            self.target_critics = Critics(obs_dim + action_dim, hidden, count)
            for target, source in (
                (self.target_policy, self.policy),
                (self.target_critics, self.critics),
            ):
                target.load_state_dict(source.state_dict())
                target.requires_grad_(False)

    def get_non_inference_attributes(self) -> list[str]:
        return ["critics", "target_policy", "target_critics"]

    def noise_state(self) -> Tensor | None:
        return self._process.get_state() if self._process else None

    def set_noise_state(self, state: Tensor | None) -> None:
        if self._process is not None and state is not None:
            self._process.set_state(state)

    def explore(
        self, obs: Tensor, generator: torch.Generator | None, starts: Tensor | None
    ) -> Tensor:
        noise = torch.randn(len(obs), self.dimensions[1], generator=generator)
        added = self._process(noise, starts) if self._process else self._std * noise
        return (self.policy(obs) + added).clamp_(-1.0, 1.0)
