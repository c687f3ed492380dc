"""The env runner: steps environments and hands out packed transition rows.

RLlib's own single-agent runner builds an episode object and walks two connector pipelines for each
step. The trainers here want rows, so this subclass of its public extension point writes them
directly and keeps what the rest of RLlib asks of a runner: weights, state, metrics, seeds,
evaluation and recovery from a failed environment.
"""

import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import ray
import torch
from ray.rllib.core import COMPONENT_RL_MODULE, DEFAULT_AGENT_ID, DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.env import INPUT_ENV_SINGLE_SPACES, INPUT_ENV_SPACES
from ray.rllib.env.env_runner import NUM_ENV_STEP_FAILURES_LIFETIME, EnvRunner
from ray.rllib.utils.checkpoints import Checkpointable
from ray.rllib.utils.metrics import (
    EPISODE_LEN_MEAN,
    EPISODE_RETURN_MAX,
    EPISODE_RETURN_MEAN,
    EPISODE_RETURN_MIN,
    NUM_AGENT_STEPS_SAMPLED_LIFETIME,
    NUM_ENV_STEPS_SAMPLED,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    NUM_EPISODES,
    NUM_EPISODES_LIFETIME,
    NUM_MODULE_STEPS_SAMPLED_LIFETIME,
    SAMPLE_TIMER,
    WEIGHTS_SEQ_NO,
)

from interreplay.environments import make_vector_env
from interreplay.environments import state as env_state
from interreplay.errors import UsageError, add_sentence, keep_traceback
from replay_buffers.storage import Floats, Ints, Schema

EPISODE_RETURNS = "episode_returns"
# Episode ids of different runners must differ: each gets this many of its own.
_EPISODES_PER_RUNNER = 1 << 40
LONGEST_EPISODE = 100_000
# What a runner knows of the episodes under way and has not reported, besides the simulators.
_OF_EPISODES = (
    *("_obs", "_returns", "_step_index", "_episode"),
    *("_finished", "_steps_unreported", "_failures"),
)


@dataclass(frozen=True)
class Rows:
    """Transitions of one or more episodes, in the order they were lived.

    Attributes:
        rows: `[n, width]` float32, packed by `Schema`; actions in policy space.
        episode: `[n]` int64, unique over all runners of a run.
        step: `[n]` int64, the transition's index in its episode.
    """

    rows: Floats
    episode: Ints
    step: Ints

    def __len__(self) -> int:
        return len(self.rows)

    def env_steps(self) -> int:
        """Number of transitions (RLlib's name)."""
        return len(self.rows)

    agent_steps = env_steps


class RowEnvRunner(EnvRunner, Checkpointable):
    """Runs `num_envs_per_env_runner` copies of the environment side by side.

    Reads of its config: `env`, `env_config["horizon"]`, `num_envs_per_env_runner`,
    `rollout_fragment_length`, `explore`, `seed`, `restart_failed_sub_environments`.
    """

    def __init__(self, *, config: Any, **kwargs: Any) -> None:
        super().__init__(config=config, **kwargs)
        self.env: Any = None  # a gymnasium SyncVectorEnv
        self.num_envs = 0
        self.module: Any = None
        self._weights_seq_no = 0
        self._generator = torch.Generator()
        if self._seed is None:
            self._generator.seed()
        else:
            self._generator.manual_seed(self._seed)
        self._episodes_started = 0
        self._needs_reset = True
        self.episodes_lost: str | None = None  # why restored episodes could not go on
        self._failures = 0
        self._seconds = 0.0
        self._steps_unreported = 0
        self._finished: list[tuple[float, int]] = []  # (return, length) since the last report
        self.make_env()
        self.make_module()

    def make_env(self) -> None:
        """(Re)build the environments; the next sample starts new episodes."""
        if self.env is not None:
            self.env.close()
        count = self.config.num_envs_per_env_runner
        self.env = make_vector_env(
            self.config.env, count, horizon=self.config.env_config.get("horizon")
        )
        self.num_envs = count
        action = self.env.single_action_space
        assert isinstance(action, gym.spaces.Box)  # make_vector_env has checked it
        obs_shape = self.env.single_observation_space.shape
        assert obs_shape is not None
        self._low, self._high = action.low, action.high
        self._half_range = (action.high.astype(np.float64) - action.low.astype(np.float64)) / 2
        self.schema = Schema(obs_shape[0], action.shape[0])
        self._needs_reset = True

    def make_module(self) -> None:
        """Build the policy from the config's module spec, on CPU."""
        spec = self.config.get_rl_module_spec(
            env=self.env, spaces=self.get_spaces(), inference_only=True
        )
        self.module = spec.build()

    def get_spaces(self) -> dict[str, Any]:
        assert self.env is not None
        single = (self.env.single_observation_space, self.env.single_action_space)
        return {
            INPUT_ENV_SPACES: (self.env.observation_space, self.env.action_space),
            INPUT_ENV_SINGLE_SPACES: single,
            DEFAULT_MODULE_ID: single,
        }

    def assert_healthy(self) -> None:
        assert self.env is not None and self.module is not None

    def stop(self) -> None:
        if self.env is not None:
            self.env.close()

    # -- sampling ------------------------------------------------------------------------------

    def sample(
        self,
        *,
        num_timesteps: int | None = None,
        num_episodes: int | None = None,
        explore: bool | None = None,
        force_reset: bool = False,
        **_: Any,
    ) -> list[Any]:
        """Step the environments.

        Args:
            num_timesteps: at least this many transitions (a multiple of the number of copies);
                by default `rollout_fragment_length` from each copy. The next call goes on. With
                the config's `whole_episodes`: up to the episode's end, but at most this many.
            num_episodes: instead, this many whole episodes on freshly seeded environments, shared
                out beforehand so that short episodes don't crowd out long ones.
            explore: the policy's exploration or its deterministic action; by default the config's.
            force_reset: start new episodes.

        Returns:
            A list with one `Rows` (a list because RLlib concatenates what runners return). In a
            worker process an error is handed back in its place: RLlib ends a process whose call
            raises, and the reason with it.

        Raises:
            UsageError: the environment returned a number that is not finite.
        """
        try:
            return [self._sample(num_timesteps, num_episodes, explore, force_reset)]
        except Exception as error:
            restarts = self.config.restart_failed_env_runners
            if self.worker_index and (isinstance(error, UsageError) or not restarts):
                if not isinstance(error, UsageError):
                    keep_traceback(error)
                return [error]
            raise

    def _sample(
        self,
        num_timesteps: int | None,
        num_episodes: int | None,
        explore: bool | None,
        force_reset: bool,
    ) -> Rows:
        started = time.perf_counter()
        explore = self.config.explore if explore is None else explore
        if num_episodes is not None:
            rows = self._sample_episodes(num_episodes, explore)
        else:
            if self._needs_reset or force_reset:
                self._reset(self._training_seed())
            rows = self._concatenate(self._fragment(num_timesteps, explore))
        self._seconds += time.perf_counter() - started
        self._steps_unreported += len(rows)
        return rows

    def _fragment(self, most: int | None, explore: bool) -> list[Rows]:
        whole = getattr(self.config, "whole_episodes", False)
        if most is None:
            usual = self.config.rollout_fragment_length * self.num_envs
            most = LONGEST_EPISODE if whole else usual
        parts = []
        for _ in range(-(-most // self.num_envs)):
            parts.append(self._step(explore))
            if whole and (parts[-1].rows[:, -2:] > 0).any():
                break
        return parts

    def _training_seed(self) -> int | None:
        """The run's seed; after a restore another one, so that old episodes don't come again."""
        if self._seed is None or self.num_env_steps_sampled_lifetime == 0:
            return self._seed
        return self._seed_at(self.num_env_steps_sampled_lifetime)

    def _seed_at(self, step: int) -> int:
        return int(np.random.SeedSequence([self._seed or 0, step]).generate_state(1)[0])

    def _sample_episodes(self, count: int, explore: bool) -> Rows:
        # New initial states for every evaluation, and the same ones for the same seed and step.
        step = self.num_env_steps_sampled_lifetime
        self._reset(None if self._seed is None else self._seed_at(step))
        share, rest = divmod(count, self.num_envs)
        left = np.full(self.num_envs, share) + (np.arange(self.num_envs) < rest)
        kept = []
        while left.any():
            rows = self._step(explore, counted=left > 0)
            wanted = left > 0
            if self._step_index.max() > LONGEST_EPISODE:
                raise UsageError(
                    f"an evaluation episode of {self.config.env} has not ended after "
                    f"{LONGEST_EPISODE:,} steps; give it a time limit with --horizon"
                )
            if len(rows) == self.num_envs:  # not after a failed step
                kept.append(Rows(rows.rows[wanted], rows.episode[wanted], rows.step[wanted]))
                left -= wanted & (rows.rows[:, -2:] > 0).any(axis=1)
        self._needs_reset = True
        return self._concatenate(kept)

    def _concatenate(self, parts: list[Rows]) -> Rows:
        if len(parts) == 1:
            return parts[0]
        return Rows(
            np.concatenate([part.rows for part in parts]),
            np.concatenate([part.episode for part in parts]),
            np.concatenate([part.step for part in parts]),
        )

    def _reset(self, seed: int | None) -> None:
        assert self.env is not None
        try:
            obs, _ = self.env.reset(seed=seed)
        except Exception as error:
            self._say_where(error)
            raise
        self._obs = self._checked(np.array(obs, np.float32), np.zeros(self.num_envs, np.int64))
        self._returns = np.zeros(self.num_envs)
        self._step_index = np.zeros(self.num_envs, np.int64)
        self._episode = self._new_episodes(self.num_envs)
        self._needs_reset = False

    def _new_episodes(self, count: int) -> Ints:
        first = (self.worker_index or 0) * _EPISODES_PER_RUNNER + self._episodes_started
        self._episodes_started += count
        return first + np.arange(count, dtype=np.int64)

    def _actions(self, explore: bool) -> Floats:
        batch = {Columns.OBS: torch.from_numpy(self._obs)}
        if explore:
            out = self.module.forward_exploration(
                batch,
                t=self.num_env_steps_sampled_lifetime,
                generator=self._generator,
                starts=torch.from_numpy(self._step_index == 0),
            )
        else:
            out = self.module.forward_inference(batch)
        actions: Floats = out[Columns.ACTIONS].numpy()
        if not np.isfinite(actions).all():
            raise UsageError(
                "training has diverged: the policy's action is not a number at env step "
                f" {self.num_env_steps_sampled_lifetime}; lower the learning rates"
            )
        return actions

    def _to_env(self, actions: Floats) -> Any:
        """From policy space [-1, 1] to the environment's box and dtype."""
        scaled = (self._low + (actions + 1.0) * self._half_range).astype(self._low.dtype)
        return np.clip(scaled, self._low, self._high)

    def _step(self, explore: bool, counted: Any = None) -> Rows:
        """One step of every copy; no rows when the environment failed and was rebuilt."""
        assert self.env is not None
        actions = self._actions(explore)
        try:
            obs, rewards, terminated, truncated, infos = self.env.step(self._to_env(actions))
        except Exception as error:
            wrong = isinstance(error, UsageError)  # it would be wrong again
            if wrong or not self.config.restart_failed_sub_environments:
                self._say_where(error)
                raise
            self._failures += 1
            self.make_env()
            self._reset(None)
            return Rows(np.empty((0, self.schema.width), np.float32), *[np.empty(0, np.int64)] * 2)
        following = np.array(obs, np.float32)
        new_obs = following
        done = terminated | truncated
        if done.any():
            new_obs = following.copy()
            for index in np.flatnonzero(done):
                new_obs[index] = infos["final_obs"][index]
        self._checked(new_obs, self._step_index + 1, rewards)
        rows = Rows(
            self.schema.pack(self._obs, actions, rewards, new_obs, terminated, truncated),
            self._episode.copy(),
            self._step_index.copy(),
        )
        self._returns += rewards
        self._step_index += 1
        self._obs = following
        if done.any():
            self._close(np.flatnonzero(done), counted)
        # An estimate of all runners' steps; the algorithm sends the true number once an iteration.
        self.num_env_steps_sampled_lifetime += (
            0 if self.config.in_evaluation else self.num_envs * max(1, self.num_workers or 0)
        )
        return rows

    def _say_where(self, error: Exception) -> None:
        """Let the traceback of an environment's own error end with which one it was, and when."""
        if not isinstance(error, UsageError):
            when = "in an evaluation " if self.config.in_evaluation else ""
            add_sentence(
                error,
                f"the environment {self.config.env} raised this {when}at env step "
                f"{self.num_env_steps_sampled_lifetime + 1:,} of the run",
            )

    def _close(self, finished: Ints, counted: Any) -> None:
        for index in finished:
            if counted is None or counted[index]:
                self._finished.append((float(self._returns[index]), int(self._step_index[index])))
        self._returns[finished] = 0.0
        self._step_index[finished] = 0
        self._episode[finished] = self._new_episodes(len(finished))
        self._checked(self._obs[finished], self._step_index[finished])

    def _checked(self, obs: Floats, steps: Ints, rewards: Any = None) -> Floats:
        for name, values in (("observation", obs), ("reward", rewards)):
            if values is not None and not np.isfinite(values).all():
                place = np.argwhere(~np.isfinite(values))[0]
                element = f"[{place[1]}]" if len(place) > 1 else ""
                raise UsageError(
                    f"{self.config.env} returned {name}{element} = {values[tuple(place)]} at step "
                    f"{steps[place[0]]} of an episode; the environment must return finite numbers"
                )
        return obs

    # -- what RLlib asks of a runner -----------------------------------------------------------

    def get_metrics(self) -> Any:
        """Episode returns and lengths, steps and times since the last call."""
        log = self.metrics.log_value
        window = max(1, self.config.metrics_num_episodes_for_smoothing)
        for episode_return, length in self._finished:
            log(EPISODE_RETURN_MEAN, episode_return, window=window)
            log(EPISODE_LEN_MEAN, length, window=window)
            log(EPISODE_RETURN_MIN, episode_return, reduce="min", window=window)
            log(EPISODE_RETURN_MAX, episode_return, reduce="max", window=window)
            if self.config.in_evaluation:
                log(EPISODE_RETURNS, episode_return, reduce="item_series")
        steps, episodes = self._steps_unreported, len(self._finished)
        log(NUM_ENV_STEPS_SAMPLED, steps, reduce="sum")
        log(NUM_EPISODES, episodes, reduce="sum")
        log(NUM_ENV_STEPS_SAMPLED_LIFETIME, steps, reduce="lifetime_sum")
        log((NUM_AGENT_STEPS_SAMPLED_LIFETIME, DEFAULT_AGENT_ID), steps, reduce="lifetime_sum")
        log((NUM_MODULE_STEPS_SAMPLED_LIFETIME, DEFAULT_MODULE_ID), steps, reduce="lifetime_sum")
        log(NUM_EPISODES_LIFETIME, episodes, reduce="lifetime_sum")
        log(SAMPLE_TIMER, self._seconds, reduce="sum")
        if self._failures:
            log(NUM_ENV_STEP_FAILURES_LIFETIME, self._failures, reduce="lifetime_sum")
        self._finished, self._steps_unreported = [], 0
        self._seconds, self._failures = 0.0, 0
        return self.metrics.reduce()

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Steps taken, episode counter, generator and (unless left out) the policy's weights.

        Also the episodes under way, simulators included, so that a restored runner goes on in the
        middle of them; of an environment that can't give its state, why not.
        """
        state: dict[str, Any] = {
            NUM_ENV_STEPS_SAMPLED_LIFETIME: self.num_env_steps_sampled_lifetime,
            "episodes_started": self._episodes_started,
            "generator": self._generator.get_state().numpy(),
        }
        if self._check_component(COMPONENT_RL_MODULE, components, not_components):
            state[COMPONENT_RL_MODULE] = self.module.get_state(**kwargs)
            state[WEIGHTS_SEQ_NO] = self._weights_seq_no
        if not (self._needs_reset or self.config.in_evaluation):
            state["episodes"] = self._episodes_under_way()
        return state

    def _episodes_under_way(self) -> dict[str, Any] | str:
        try:
            simulators = [env_state.get_state(env) for env in self.env.envs]
        except env_state.CannotSaveError as reason:
            return str(reason)
        values = {name: getattr(self, name) for name in _OF_EPISODES}
        # Some trainers' exploration noise has a memory; the policy's own state does not know it.
        return {"simulators": simulators, "noise": self.module.noise_state(), **values}

    def set_state(self, state: Any) -> None:
        """Take over weights (when newer), counters and generator, whichever are in `state`."""
        weights = state.get(COMPONENT_RL_MODULE)
        sequence = state.get(WEIGHTS_SEQ_NO, 0)
        if weights is not None and (sequence == 0 or sequence > self._weights_seq_no):
            if isinstance(weights, ray.ObjectRef):
                weights = ray.get(weights)
            self.module.set_state(weights.get(DEFAULT_MODULE_ID, weights))
            self._weights_seq_no = max(sequence, self._weights_seq_no)
        if NUM_ENV_STEPS_SAMPLED_LIFETIME in state:
            self.num_env_steps_sampled_lifetime = state[NUM_ENV_STEPS_SAMPLED_LIFETIME]
        if "generator" in state:
            self._episodes_started = state["episodes_started"]
            self._generator.set_state(torch.from_numpy(np.array(state["generator"])))
            self._needs_reset = True
            self.episodes_lost = None
        if isinstance(episodes := state.get("episodes"), str):
            self.episodes_lost = episodes
        elif episodes is not None and not self.worker_index:
            self._go_on_with(dict(episodes))

    def _go_on_with(self, episodes: dict[str, Any]) -> None:
        self.env.reset(seed=0)  # an environment must have been reset before it is stepped
        for env, saved in zip(self.env.envs, episodes.pop("simulators"), strict=True):
            env_state.set_state(env, saved)
        self.module.set_noise_state(episodes.pop("noise"))
        for name, value in episodes.items():
            setattr(self, name, value)
        self._needs_reset = False

    def get_ctor_args_and_kwargs(self) -> tuple[tuple[()], dict[str, Any]]:
        return (), {"config": self.config}

    def get_checkpointable_components(self) -> list[tuple[str, Any]]:
        return [(COMPONENT_RL_MODULE, self.module)]
