"""The settings that all off-policy trainers share, as an RLlib config."""

from typing import Any

from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

from interreplay.algorithms.env_runner import RowEnvRunner
from interreplay.errors import UsageError
from replay_buffers import CATALOG

_EVALUATION_ENVS = 16


class OffPolicyConfig(AlgorithmConfig):
    """Settings that all trainers share; a trainer adds its networks and learning rates.

    Use RLlib's own methods (`environment`, `env_runners`, `training`, `debugging(seed=...)`) and
    `replay(...)` for what RLlib has no word for.
    """

    module_class: type
    learner_class: type

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class)
        self.env_runner_cls = RowEnvRunner
        self.rollout_fragment_length = 1
        self.num_env_runners = 0
        self.gamma = 0.99
        self.train_batch_size_per_learner = 256
        self.hidden_sizes: tuple[int, ...] = (256, 256)
        # Adds actor_l2 / 2 times the squared weights of the policy's layers to its loss.
        self.actor_l2 = 0.0
        self.recipe = "vanilla"
        self.prioritized_replay = False
        self.buffer_size = 1_000_000
        self.replay_settings: dict[str, Any] = {}
        self.replay_ratio = 1.0
        self.learning_starts = 1500
        self.timesteps_per_iteration = 1000
        self.total_timesteps: int | None = None
        self.num_sgd_iter = 1
        self.whole_episodes = False
        self.target_by_steps_sampled = False
        self.checkpoint_buffer = True
        # An environment that fails would be restarted without end and without a word.
        self.restart_failed_env_runners = False
        self.evaluate_episodes(interval=1, episodes=1)

    def replay(
        self,
        *,
        recipe: str | None = None,
        prioritized: bool | None = None,
        buffer_size: int | None = None,
        ratio: float | None = None,
        learning_starts: int | None = None,
        timesteps_per_iteration: int | None = None,
        total_timesteps: int | None = None,
        num_sgd_iter: int | None = None,
        whole_episodes: bool | None = None,
        target_by_steps_sampled: bool | None = None,
        checkpoint_buffer: bool | None = None,
        **settings: Any,
    ) -> "OffPolicyConfig":
        """Choose the recipe and how often rows are replayed.

        Args:
            recipe: a name of `replay_buffers.CATALOG`.
            prioritized: proportional sampling under the recipe.
            buffer_size: rows kept.
            ratio: minibatches per env step after warm-up; may be a fraction.
            num_sgd_iter: gradient updates on each minibatch.
            whole_episodes: env runners hand over whole episodes; the updates follow them.
            target_by_steps_sampled: targets move by tau per env step instead of per update.
            learning_starts: env steps of uniform random actions before the first update.
            timesteps_per_iteration: env steps in one `train()` call.
            total_timesteps: `train()` ends at this many env steps, rounded up to whole steps of
                all environments (and fragments of env runners in other processes); it is also
                the span over which prioritized replay's beta is annealed.
            checkpoint_buffer: checkpoints hold the replay buffer. Restored without it, a run
                collects `learning_starts` env steps before its next update.
            settings: fields of `replay_buffers.assembly.ReplaySettings`.
        """
        given = {
            "recipe": recipe,
            "prioritized_replay": prioritized,
            "buffer_size": buffer_size,
            "replay_ratio": ratio,
            "learning_starts": learning_starts,
            "timesteps_per_iteration": timesteps_per_iteration,
            "total_timesteps": total_timesteps,
            "num_sgd_iter": num_sgd_iter,
            "whole_episodes": whole_episodes,
            "target_by_steps_sampled": target_by_steps_sampled,
            "checkpoint_buffer": checkpoint_buffer,
        }
        for name, value in given.items():
            if value is not None:
                setattr(self, name, value)
        self.replay_settings = {**self.replay_settings, **settings}
        return self

    def evaluate_episodes(self, *, interval: int, episodes: int) -> "OffPolicyConfig":
        """Evaluate the deterministic policy on its own environments, side by side."""
        self.evaluation(
            evaluation_interval=interval,
            evaluation_duration=episodes,
            evaluation_duration_unit="episodes",
            evaluation_num_env_runners=0,
            evaluation_config={
                "explore": False,
                "num_envs_per_env_runner": min(episodes, _EVALUATION_ENVS),
            },
        )
        return self

    def validate(self) -> None:
        """Raises UsageError (or RLlib's own ValueError) for settings that can't work together."""
        super().validate()
        if self.recipe not in CATALOG:
            raise UsageError(f"unknown recipe {self.recipe!r}; choose one of {', '.join(CATALOG)}")
        if self.num_views > 1 and self.num_learners > 1:
            raise UsageError(
                "several S4RL views of a row can't be shared out between learners; set "
                "num_learners to 1 or s4rl_num_views to 1"
            )
        if self.whole_episodes and self.num_envs_per_env_runner > 1:
            raise UsageError(
                "--whole_episodes steps one environment per env runner, but --num_envs_per_worker "
                f"is {self.num_envs_per_env_runner}; use --num_workers for more"
            )
        if self.replay_ratio <= 0:
            raise UsageError(f"--replay_ratio is {self.replay_ratio}; it must be positive")
        if self.framework_str != "torch":
            raise UsageError(f"--framework is {self.framework_str}; only torch is supported")

    @property
    def num_views(self) -> int:
        """Rows in a minibatch for each row sampled."""
        views = self.replay_settings.get("s4rl_num_views", 1) if self.recipe == "s4rl" else 1
        return int(views)

    def get_state(self) -> dict[str, Any]:
        """RLlib's state, and our settings that are -1: it takes that number for "deprecated"."""
        theirs = vars(AlgorithmConfig())
        ours = {k: v for k, v in vars(self).items() if k not in theirs and v == -1}
        return {**super().get_state(), **ours}

    def module_settings(self) -> dict[str, Any]:
        """What the module is built from."""
        return {"hidden_sizes": tuple(self.hidden_sizes), "learning_starts": self.learning_starts}

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        return RLModuleSpec(module_class=self.module_class, model_config=self.module_settings())

    def get_default_learner_class(self) -> type:
        return self.learner_class
