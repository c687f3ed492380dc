"""The settings of a run of RLlib's own algorithms, and the flags of `rllib train`.

Flags may be written with dashes or underscores. Needs neither torch nor ray.
"""

import argparse
import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from interreplay.errors import UsageError
from interreplay.launch.settings.reading import Parser, integer

STEPS_PER_ITERATION = 1000
EXAMPLE = "rllib train --run SAC --env CartPole-v0"


@dataclass(frozen=True)
class RllibSettings:
    """One run of an algorithm of RLlib's; `None` leaves a number to the algorithm.

    Attributes:
        config: RLlib's settings by name, over the algorithm's defaults.
        resolved: all of RLlib's settings that JSON can hold, for config.json.
    """

    run: str
    env: str
    seed: int = 42
    stop_timesteps: int = 50_000
    config: dict[str, Any] = field(default_factory=dict)
    num_env_runners: int | None = None
    checkpoint_freq: int = 500
    evaluation_interval: int = 1
    evaluation_num_episodes: int = 1
    num_cpus: int | None = None
    local_dir: str = "~/ray_results"
    agent_name: str = "interreplay"
    fresh: bool = False
    verbose: bool = False
    wandb: bool = False
    print_config: bool = False
    resolved: dict[str, Any] = field(default_factory=dict)

    log_dir = None
    restore_path = None

    @property
    def total_timesteps(self) -> int:
        return self.stop_timesteps

    @property
    def place(self) -> tuple[str, str, str, str, int]:
        """What tells this run's folder from others' in `local_dir`."""
        return (self.agent_name, self.env, "RLlib", self.run, self.seed)

    @property
    def name(self) -> str:
        return f"RLlib's {self.run} on {self.env}, seed {self.seed}"

    @property
    def iteration(self) -> int:
        """Env steps in an iteration: about 1,000, so that whole iterations make up the budget."""
        iterations = -(-self.stop_timesteps // STEPS_PER_ITERATION)
        return -(-self.stop_timesteps // iterations)

    def to_dict(self) -> dict[str, Any]:
        """What decides the results, as JSON values."""
        left_out = {"num_cpus", "local_dir", "fresh", "verbose", "wandb", "print_config"}
        values = {k: v for k, v in dataclasses.asdict(self).items() if k not in left_out}
        warm_up = self.resolved.get("num_steps_sampled_before_learning_starts") or 0
        return {"trainer": "RLlib", "learning_starts": warm_up, **values}


def build_parser() -> argparse.ArgumentParser:
    """The flags of `rllib train`; only those that were given appear in its result."""
    parser = Parser(
        prog="rllib train",
        usage="rllib train --run ALGO --env ENV [flags]",
        description="Train an algorithm of RLlib's own (SAC, PPO, DQN, TQC, ...) with RLlib's own "
        "defaults; the run folder and its figures are those of custom_training.py.",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    add = parser.add_argument
    add("--run", metavar="ALGO", help="RLlib's name of the algorithm")
    add("--env", metavar="ENV", help="Gymnasium id, of discrete or continuous actions")
    number: dict[str, Any] = {"metavar": "N", "type": integer}
    add(
        "--stop-timesteps",
        help="budget in env steps (default: 50000), rounded up to what the algorithm collects in "
        "one iteration: about 1,000 steps, a whole batch for PPO (4,000)",
        **number,
    )
    add(
        "--config",
        metavar="JSON",
        help="RLlib's settings over its defaults: a JSON object, or a file that holds one",
    )
    add("--seed", help="seeds RLlib (default: 42)", **number)
    add(
        "--num-env-runners",
        help="processes that collect steps (default: the algorithm's)",
        **number,
    )
    add(
        "--checkpoint-freq",
        help="iterations between checkpoints; 0 keeps the last one only (default: 500)",
        **number,
    )
    add("--evaluation-interval", help="iterations between evaluations (default: 1)", **number)
    add("--evaluation-num-episodes", help="episodes in an evaluation (default: 1)", **number)
    add("--num-cpus", help="cores for this run (default: all that are allotted)", **number)
    add("--local-dir", metavar="DIR", help="folder of all results (default: ~/ray_results)")
    add("--agent-name", metavar="NAME", help="folder in it (default: interreplay)")
    add("--wandb", action="store_true", help="also report to Weights & Biases")
    add("--fresh", action="store_true", help="delete this run's earlier results and start over")
    add("--verbose", "-v", action="store_true", help="show RLlib's own messages and tracebacks")
    add("--print-config", action="store_true", help="print the resolved settings and stop")
    return parser


_LEAST = {"seed": 0, "num_env_runners": 0, "checkpoint_freq": 0}


def parse(argv: Sequence[str]) -> RllibSettings:
    """Read the words after `rllib train`.

    Raises:
        UsageError: a flag, a value or a file that can't be used.
    """
    given = vars(build_parser().parse_args([_dashed(word) for word in argv]))
    for name in ("run", "env"):
        if name not in given:
            raise UsageError(f"--{name} is missing, as in: {EXAMPLE}")
    for name, value in given.items():
        if isinstance(value, int) and not isinstance(value, bool) and value < _LEAST.get(name, 1):
            least = _LEAST.get(name, 1)
            raise UsageError(f"--{name.replace('_', '-')} is {value}; it must be {least} or more")
    if given.get("seed", 0) >= 2**32:
        raise UsageError(f"--seed is {given['seed']}; it must be below 2**32")
    if "config" in given:
        given["config"] = _read_config(given["config"])
    return RllibSettings(**given)


def _dashed(word: str) -> str:
    if not word.startswith("--"):
        return word
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value


# Settings of RLlib that have flags here, which the run's folder or its reports depend on.
_FLAGS = {
    "env": "--env",
    "seed": "--seed",
    "num_env_runners": "--num-env-runners",
    "evaluation_interval": "--evaluation-interval",
    "evaluation_duration": "--evaluation-num-episodes",
}


def _read_config(text: str) -> dict[str, Any]:
    where = "--config"
    if not text.lstrip().startswith("{"):
        where = f"--config {text}"
        try:
            text = Path(text).expanduser().read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{where} is neither a JSON object nor a readable file") from error
    try:
        config = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{where} is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise UsageError(f"{where} must hold one JSON object of RLlib's settings")
    for name in config:
        if name in _FLAGS:
            raise UsageError(f"{name!r} in --config has a flag of its own: {_FLAGS[name]}")
    return config
