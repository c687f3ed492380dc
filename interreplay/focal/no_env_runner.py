"""What stands in the env runner's place where learning needs data alone."""

from typing import Any

from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.env.env_runner import EnvRunner
from ray.rllib.utils.checkpoints import Checkpointable

from interreplay.errors import UsageError


class NoEnvRunner(EnvRunner, Checkpointable):
    """Stands where RLlib wants an env runner; there is no environment and nothing is sampled."""

    def get_spaces(self) -> dict[str, Any]:
        return {DEFAULT_MODULE_ID: (self.config.observation_space, self.config.action_space)}

    def assert_healthy(self) -> None:
        """There is nothing that could be ill."""

    def sample(self, **_: Any) -> Any:
        raise UsageError("FOCAL learns from data alone; to act in a task use Focal.meta_policy()")

    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return {}

    def set_state(self, state: Any) -> None:
        """Nothing was saved."""

    def get_ctor_args_and_kwargs(self) -> tuple[tuple[()], dict[str, Any]]:
        return (), {"config": self.config}
