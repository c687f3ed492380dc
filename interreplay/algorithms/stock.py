"""RLlib's own algorithms, counted and evaluated like ours: what our recipes are compared with."""

import dataclasses
import difflib
import json
import time
from collections.abc import Callable, Collection
from typing import Any

from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.registry import ALGORITHMS
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.utils.metrics import (
    ENV_RUNNER_RESULTS,
    EVALUATION_RESULTS,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
)
from ray.tune.registry import register_env

from interreplay.algorithms.env_runner import EPISODE_RETURNS
from interreplay.environments import build_env, in_gymnasium
from interreplay.errors import UsageError

# They learn from recorded data; nothing is sampled from the environment.
_OFFLINE = ("BC", "CQL", "IQL", "MARWIL")
# In ray, but not in its registry.
_UNREGISTERED = ("TQC",)
# The action spaces of the algorithms that don't take every one.
_ACTIONS = {"DQN": "Discrete", "TQC": "Box", "SAC": "Box or Discrete"}
# Settings of the old API stack: the new one accepts and ignores them.
_OLD_STACK = {
    "train_batch_size": "train_batch_size_per_learner",
    "model": "model_config",
    "policy_model_config": "model_config",
    "q_model_config": "model_config",
    "optimization": "actor_lr, critic_lr and alpha_lr",
    "num_gpus": "num_gpus_per_learner",
    "exploration_config": "epsilon, or the algorithm's own settings",
}
_NOT_SET = {*_OLD_STACK, "algo_class"}
_NEVER = 10**9  # iterations


def stock_algorithms() -> tuple[str, ...]:
    """Names that `stock_default` knows: ray's registry, those for recorded data left out, and TQC.

    All of RLlib's are for the new API stack.
    """
    return tuple(sorted({*ALGORITHMS, *_UNREGISTERED} - {*_OFFLINE}, key=str.lower))


def stock_default(name: str) -> AlgorithmConfig:
    """RLlib's default config of the algorithm `name`.

    Raises:
        UsageError: RLlib has none of that name that learns online.
    """
    if name in ("TD3", "DDPG"):
        raise UsageError(
            f"RLlib has no {name} any more, but this project has: "
            f"python3 custom_training.py --trainer {name}"
        )
    if name in _OFFLINE:
        raise UsageError(
            f"{name} learns from recorded data, not from an environment; use it from Python "
            f"(ray.rllib.algorithms.{name.lower()}), or --run one of "
            f"{', '.join(stock_algorithms())}"
        )
    if name not in stock_algorithms():
        raise UsageError(
            f"RLlib has no algorithm {name!r}; --run one of {', '.join(stock_algorithms())}"
        )
    if name == "TQC":
        from ray.rllib.algorithms.tqc import TQCConfig

        return TQCConfig()
    return ALGORITHMS[name]()[1]


def check_actions(name: str, env: str, action_space: Any) -> None:
    """Refuse an environment that the algorithm `name` can't act in.

    Raises:
        UsageError: the kind of actions that it takes, and those that `env` has.
    """
    kind, takes = type(action_space).__name__, _ACTIONS.get(name)
    if takes is not None and kind not in takes.split(" or "):
        others = [n for n in ("SAC", "PPO", "DQN", "TQC") if kind in _ACTIONS.get(n, kind)]
        raise UsageError(
            f"{name} takes {takes} actions, but {env} has {kind} actions; "
            f"--run one of {', '.join(others)} or choose another --env"
        )


def check_overrides(config: AlgorithmConfig, overrides: dict[str, Any]) -> None:
    """Refuse settings that RLlib would set without a word and never read.

    Raises:
        UsageError: the setting, and the one that may have been meant.
    """
    _check_names(overrides, _settings(config), config.algo_class.__name__)
    model = overrides.get("model_config", {})
    if not isinstance(model, dict):
        raise UsageError("model_config in --config must be a JSON object")
    layers = {field.name for field in dataclasses.fields(DefaultModelConfig)}
    _check_names(model, layers | set(config.model_config), "model_config")


def _check_names(overrides: dict[str, Any], known: Collection[str], owner: str) -> None:
    for name in overrides:
        if name in _OLD_STACK:
            raise UsageError(
                f"{name!r} in --config belongs to RLlib's old API stack; set {_OLD_STACK[name]}"
            )
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}?" if close else "--print-config lists all settings"
            raise UsageError(f"RLlib's {owner} has no setting {name!r}: {hint}")


def _settings(config: AlgorithmConfig) -> dict[str, Any]:
    """What can be set on the new API stack."""
    # RLlib's mark of what it has deprecated is the number -1.
    values = {
        name.removesuffix("_"): value
        for name, value in vars(config).items()
        if not (name.startswith("_") or (isinstance(value, int) and value == -1))
    }
    values["train_batch_size_per_learner"] = config.train_batch_size_per_learner
    values["model_config"] = config.model_config
    return {name: values[name] for name in sorted(values) if name not in _NOT_SET}


def stock_values(config: AlgorithmConfig) -> dict[str, Any]:
    """The settings of `config` that JSON can hold, RLlib's defaults and ours."""
    left_out = ("callbacks_", "evaluation_interval", "log_level")
    return {
        name: value
        for name, value in _settings(config).items()
        if not name.startswith(left_out) and _is_plain(value)
    }


def _is_plain(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):  # a class, a function or a space
        return False
    return True


def stock_config(
    name: str,
    env: str,
    *,
    overrides: dict[str, Any] | None = None,
    seed: int = 42,
    iteration: int = 1000,
    evaluation_episodes: int = 1,
    num_env_runners: int | None = None,
    verbose: bool = False,
) -> AlgorithmConfig:
    """RLlib's defaults for `name`, reported by env steps and evaluated with `explore=False`.

    Args:
        name: of `stock_algorithms()`.
        env: an id of today.
        overrides: RLlib's settings by name, over its defaults; these have the last word.
        iteration: env steps in a `train()` call, at least; algorithms that collect larger
            batches (PPO: 4,000 steps) report after each batch.
        evaluation_episodes: episodes in an evaluation.
        num_env_runners: processes that collect; by default the algorithm's own number.
        verbose: RLlib logs what it does.

    Raises:
        UsageError: a name or a setting that RLlib does not have or refuses.
    """
    config = stock_default(name)
    overrides = dict(overrides or {})
    check_overrides(config, overrides)
    if not in_gymnasium(env):
        register_env(env, lambda _: build_env(env))
    config.environment(env)
    config.debugging(seed=seed, log_level="INFO" if verbose else "ERROR")
    config.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=iteration)
    if num_env_runners is not None:
        config.env_runners(num_env_runners=num_env_runners)
    # The interval only makes RLlib build the environments: `StockAlgorithm` says when.
    config.evaluation(
        evaluation_interval=_NEVER,
        evaluation_duration=evaluation_episodes,
        evaluation_duration_unit="episodes",
        evaluation_config={"explore": False},
    )
    config.callbacks(on_episode_end=_log_return)
    model = overrides.pop("model_config", None)
    try:
        config.update_from_dict(overrides)
        if model is not None:
            config.rl_module(model_config=model)
        config.copy(copy_frozen=False).validate()
    except (ValueError, TypeError, KeyError, AttributeError, NotImplementedError) as error:
        raise UsageError(f"RLlib refuses this --config: {one_line(error)}") from error
    return config


def one_line(error: BaseException) -> str:
    """What RLlib says is wrong, without the advice that follows on more lines."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _log_return(*, episode: Any, env_runner: Any, metrics_logger: Any, **_: Any) -> None:
    """RLlib reports the mean over an evaluation's episodes; this keeps each of them."""
    if env_runner.config.in_evaluation:
        metrics_logger.log_value(EPISODE_RETURNS, episode.get_return(), reduce="item_series")


class StockAlgorithm:
    """An algorithm of RLlib with the figures that our own reports have.

    Attributes:
        progress: called with `env_steps` after each iteration, for displays.
    """

    progress: Callable[[int], None] | None = None
    saves_buffer = False

    def __init__(self, algorithm: Any, evaluation_interval: int = 1) -> None:
        self._algorithm = algorithm
        self._interval = evaluation_interval

    @property
    def env_steps(self) -> int:
        """RLlib's `env_runners/num_env_steps_sampled_lifetime`."""
        key = (ENV_RUNNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME)
        return int(self._algorithm.metrics.peek(key, default=0))

    @property
    def training_iteration(self) -> int:
        return int(self._algorithm.training_iteration)

    @property
    def updates(self) -> int:
        """Steps that the optimisers have made: Adam's own count, of the one that made most.

        RLlib reports no such count. It equals rows trained on divided by rows in a minibatch
        (`num_module_steps_trained_lifetime / module_train_batch_size_mean`). `weights_seq_no`
        is something else: a moving mean of the number of `Learner.update` calls.
        """
        counts = self._algorithm.learner_group.foreach_learner(_optimizer_steps)
        return max(int(result.get()) for result in counts)

    def train(self) -> dict[str, Any]:
        """One iteration of RLlib, then the evaluation that is due."""
        steps, updates, started = self.env_steps, self.updates, time.perf_counter()
        report: dict[str, Any] = self._algorithm.train()
        seconds = time.perf_counter() - started
        report.pop(EVALUATION_RESULTS, None)
        report |= {"env_steps": self.env_steps, "updates": self.updates}
        report["env_steps_per_s"] = (report["env_steps"] - steps) / seconds
        report["updates_per_s"] = (report["updates"] - updates) / seconds
        if self.progress is not None:
            self.progress(self.env_steps)
        if report["training_iteration"] % self._interval == 0:
            report[EVALUATION_RESULTS] = self.evaluate()
        return report

    def evaluate(self) -> dict[str, Any]:
        """RLlib's evaluation, reported once: it would repeat the result in the next report."""
        results: dict[str, Any] = self._algorithm.evaluate()
        self._algorithm.metrics.delete(EVALUATION_RESULTS, key_error=False)
        return results

    def save_to_path(self, path: str) -> str:
        """RLlib's checkpoint, for `Algorithm.from_checkpoint`; it holds no replay buffer."""
        return str(self._algorithm.save_to_path(path))

    @property
    def logdir(self) -> str:
        return str(self._algorithm.logdir)

    def stop(self) -> None:
        self._algorithm.stop()


def _optimizer_steps(learner: Any) -> int:
    counts = [0]
    for _, optimizer in learner.get_optimizers_for_module(DEFAULT_MODULE_ID):
        counts += [int(state.get("step", 0)) for state in optimizer.state.values()]
    return max(counts)
