"""Runs of RLlib's own algorithms, written down like ours: `rllib train`."""

import dataclasses
import json
import warnings
from dataclasses import dataclass
from typing import Any

from interreplay.environments import build_env, resolve_id
from interreplay.errors import UsageError
from interreplay.launch.running.kind import Machine, SameResults
from interreplay.launch.running.private_ray import set_log_level
from interreplay.launch.settings.rllib_flags import RllibSettings
from interreplay.results import RunFolder
from interreplay.results.run_folder import plain


@dataclass(frozen=True)
class RllibRun:
    """An algorithm of RLlib's registry with its own defaults."""

    settings: RllibSettings

    resumes = False  # RLlib's checkpoints hold neither the buffer nor the episodes under way

    @property
    def machine(self) -> Machine:
        config = self._config()
        learners = config.num_learners
        return Machine(
            cpus=self.settings.num_cpus,
            env_runners=config.num_env_runners,
            learners=learners,
            others=config.evaluation_num_env_runners
            + config.num_aggregator_actors_per_learner * max(1, learners),
            gpus=int(config.num_gpus_per_learner * max(1, learners)),
        )

    @property
    def same_results(self) -> SameResults:
        return SameResults()

    def checked(self) -> tuple["RllibRun", str | None]:
        """With the environment's id of today and all of RLlib's settings."""
        from interreplay.algorithms.stock import check_actions, stock_default, stock_values

        set_log_level(self.settings.verbose)  # importing RLlib has set it
        env, warning = resolve_id(self.settings.env)
        stock_default(self.settings.run)
        run = RllibRun(dataclasses.replace(self.settings, env=env))
        probe = build_env(env)
        actions = probe.action_space
        probe.close()
        check_actions(self.settings.run, env, actions)
        values = plain(stock_values(run._config()))
        return RllibRun(dataclasses.replace(run.settings, resolved=values)), warning

    def _config(self) -> Any:
        from interreplay.algorithms.stock import stock_config

        settings = self.settings
        return stock_config(
            settings.run,
            settings.env,
            overrides=settings.config,
            seed=settings.seed,
            iteration=settings.iteration,
            evaluation_episodes=settings.evaluation_num_episodes,
            num_env_runners=settings.num_env_runners,
            verbose=settings.verbose,
        )

    def card(self, threads: int, folder: RunFolder) -> dict[str, str]:
        settings = self.settings
        warm_up = settings.to_dict()["learning_starts"]
        budget = f"{settings.stop_timesteps:,} env steps"
        runners = self.machine.env_runners
        return {
            "algorithm": f"RLlib's own {settings.run}",
            "environment": settings.env,
            "settings": json.dumps(settings.config) if settings.config else "RLlib's defaults",
            "seed": str(settings.seed),
            "budget": budget + (f", updates after the first {warm_up:,}" if warm_up else ""),
            "processes": f"{threads} torch thread(s), {runners} env runner process(es)",
            "folder": str(folder.path),
        }

    def build(self) -> Any:
        from interreplay.algorithms.stock import StockAlgorithm, one_line

        # RLlib builds environments by their ids; `resolve_id` has said what there is to say.
        warnings.filterwarnings("ignore", message=".*is out of date.*")
        # TQC's loss broadcasts quantiles against quantiles, and means to.
        warnings.filterwarnings("ignore", message="Using a target size")
        settings = self.settings
        try:
            algorithm = self._config().build_algo()
        except Exception as error:  # RLlib finds most bad settings only here, each in its own way
            if settings.verbose or isinstance(error, UsageError):
                raise
            raise UsageError(
                f"RLlib can't build {settings.run} on {settings.env} with these settings "
                f"({type(error).__name__}: {one_line(error)}); --verbose shows all it says"
            ) from error
        return StockAlgorithm(algorithm, settings.evaluation_interval)

    def first_figures(self, algorithm: Any) -> dict[str, Any]:
        return {}
