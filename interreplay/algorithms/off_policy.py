"""The door into RLlib: one algorithm for every off-policy trainer.

Data flows env runner -> rows -> replay buffer -> minibatches -> learner -> TD errors back to the
buffer -> weights to the env runners. All of RLlib that is not public is touched in this room.
"""

import time
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.execution.rollout_ops import synchronous_parallel_sample
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch
from ray.rllib.utils.checkpoints import Checkpointable
from ray.rllib.utils.metrics import (
    ENV_RUNNER_RESULTS,
    EVALUATION_RESULTS,
    LEARNER_RESULTS,
    TIMERS,
)

from interreplay.algorithms.env_runner import LONGEST_EPISODE, Rows
from interreplay.algorithms.learner import TD_ERRORS
from interreplay.algorithms.slowness import Setting, SlownessWatch
from interreplay.errors import Interrupted
from replay_buffers import ReplayBuffer
from replay_buffers.assembly import ReplaySettings
from replay_buffers.augmentations import Context

COMPONENT_REPLAY_BUFFER = "replay_buffer"
COUNTERS = "off_policy_counters"
# Minibatches handed to the learner at once: bounds the memory of a high replay ratio.
_MOST_MINIBATCHES = 32
# How often env runners that all stay silent are asked again, a second apart.
_ATTEMPTS = 5


class CheckpointedBuffer(Checkpointable):
    """Lets RLlib's checkpoints carry a `ReplayBuffer`, which knows nothing of ray."""

    def __init__(self, buffer: ReplayBuffer) -> None:
        self.buffer = buffer

    def get_state(self, components: Any = None, **_: Any) -> dict[str, Any]:
        return self.buffer.get_state()

    def set_state(self, state: dict[str, Any]) -> None:
        self.buffer.set_state(state)

    def get_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (None,), {}


class OffPolicy(Algorithm):
    """Samples, stores, replays, updates.

    Attributes:
        buffer: the replay buffer.
        env_steps, updates: how many of each so far.
        progress: called with `env_steps` every few steps of a `train()` call, for displays.
        say: called with a line that whoever watches should see.
        stop_asked: asked after every env step; where it says yes, `train()` raises `Interrupted`.
            A checkpoint made then goes on in the middle of the iteration.
    """

    progress: Callable[[int], None] | None = None
    say: Callable[[str], None] | None = None
    stop_asked: Callable[[], bool] | None = None

    def setup(self, config: AlgorithmConfig) -> None:
        super().setup(config)
        obs_space, action_space = self.spaces[DEFAULT_MODULE_ID]
        budget = self.config.total_timesteps or 0
        self.buffer = ReplayBuffer.from_catalog(
            self.config.recipe,
            prioritized=self.config.prioritized_replay,
            obs_dim=obs_space.shape[0],
            action_dim=action_space.shape[0],
            capacity=self.config.buffer_size,
            seed=self.config.seed,
            **{
                "per_anneal_rows": budget,
                "gamma": self.config.gamma,
                **self.config.replay_settings,
            },
        )
        self.env_steps = 0
        self.updates = 0
        self._iteration_under_way: _Iteration | None = None
        # From which env step on minibatches are due, and how many had been made by then.
        self._due_from, self._made_before = self.config.learning_starts, 0
        settings = ReplaySettings(**self.config.replay_settings)
        self._slowness = SlownessWatch(Setting(self.buffer.recipe, settings, obs_space.shape[0]))
        self._share_weights()
        self.buffer.attach(
            Context(
                learning_rate=self.config.critic_lr,
                obs_gradient=None
                if self.learner_group.is_remote
                else self.learner_group._learner.obs_gradient,
                say=lambda line: self.say(line) if self.say is not None else None,
            )
        )

    def _share_weights(self) -> None:
        """Let local runners on the learner's device read its weights in place of copies."""
        if self.learner_group.is_remote:
            return
        learner = self.learner_group._learner
        if learner.device is not None and str(learner.device) != "cpu":
            return
        source = dict(learner.module[DEFAULT_MODULE_ID].named_parameters())
        for runner in (self.env_runner, self.eval_env_runner):
            if runner is not None:
                for name, parameter in runner.module.named_parameters():
                    parameter.data = source[name].data

    @property
    def _weights_are_shared(self) -> bool:
        return (
            self.env_runner_group.num_remote_env_runners() == 0
            and not self.learner_group.is_remote
            and self.config.num_gpus_per_learner == 0
        )

    def training_step(self) -> None:
        """One iteration: `timesteps_per_iteration` env steps and the updates they are due.

        Raises:
            Interrupted: `stop_asked` said yes before the iteration's end.
        """
        started = time.perf_counter()
        iteration = self._iteration_under_way or self._next_iteration()
        self._iteration_under_way = iteration
        while self.env_steps < iteration.goal:
            before = self.env_steps
            for rows in self._collect(iteration.goal - before):
                self.buffer.add(rows.rows, rows.episode, rows.step)
                self.env_steps += len(rows)
            self._update(
                self._minibatches_due(self.env_steps) - self.updates // self.config.num_sgd_iter
            )
            if self.config.target_by_steps_sampled and self.updates:
                self._move_targets(self.env_steps - before)
            if self.progress is not None:
                self.progress(self.env_steps)
            under_way = self.env_steps < iteration.goal
            if under_way and self.stop_asked is not None and self.stop_asked():
                iteration.seconds += time.perf_counter() - started
                raise Interrupted
        self._iteration_under_way = None
        seconds = iteration.seconds + time.perf_counter() - started
        self._log(
            self.env_steps - iteration.first_step, self.updates - iteration.first_update, seconds
        )

    def _next_iteration(self) -> "_Iteration":
        goal = self.env_steps + self.config.timesteps_per_iteration
        if self.config.total_timesteps is not None:
            goal = min(goal, self.config.total_timesteps)
        return _Iteration(goal, self.env_steps, self.updates)

    def evaluate(self, parallel_train_future: Any = None) -> dict[str, Any]:
        """RLlib's evaluation, reported once.

        RLlib logs what it returns and would report it again with the next iteration that has no
        evaluation of its own, at the wrong step.
        """
        results: dict[str, Any] = super().evaluate(parallel_train_future)
        self.metrics.delete(EVALUATION_RESULTS, key_error=False)
        return results

    def _move_targets(self, steps: int) -> None:
        for result in self.learner_group.foreach_learner(
            lambda learner: learner.move_targets(steps)
        ):
            result.get()

    def _minibatches_due(self, env_steps: int) -> int:
        """What the env steps after warm-up have earned; no counter to drift or to lose."""
        earned = int(self.config.replay_ratio * max(0, env_steps - self._due_from))
        return self._made_before + earned

    def _collect(self, most: int) -> list[Rows]:
        """A fragment from every env runner; a local one takes no more than `most` steps.

        Whole episodes may go past the iteration's end, but not past the budget's.
        """
        if self.env_runner_group.num_remote_env_runners() == 0:
            runner = self.env_runner
            fragment = self.config.rollout_fragment_length * runner.num_envs
            if self.config.whole_episodes:
                budget = self.config.total_timesteps or self.env_steps + LONGEST_EPISODE
                fragment = most = budget - self.env_steps
            collected: list[Rows] = runner.sample(num_timesteps=min(fragment, most))
            return collected
        for _ in range(_ATTEMPTS):
            lists, metrics = synchronous_parallel_sample(
                worker_set=self.env_runner_group,
                concat=False,
                sample_timeout_s=self.config.sample_timeout_s,
                _uses_new_env_runners=True,
                _return_metrics=True,
            )
            if lists:
                self.metrics.aggregate(metrics, key=ENV_RUNNER_RESULTS)
                parts = [part for runner in lists for part in runner]
                for error in parts:
                    if isinstance(error, Exception):
                        raise error
                return parts
            time.sleep(1.0)
            self.restore_env_runners(self.env_runner_group)
        raise RuntimeError(
            f"none of the {self.config.num_env_runners} env runner processes answers; run with "
            "--num_workers 0 to see the environment's own error, or with --verbose for theirs"
        )

    def _update(self, count: int) -> None:
        """Updates on `count` minibatches, in as few learner calls as the sampler allows.

        Prioritized sampling draws each minibatch after the last one's priorities are in, and so do
        augmentations that learn or ask; all other recipes draw many at once.
        """
        size = self.config.total_train_batch_size
        done = 0
        while done < count:
            minibatches = 1 if self.buffer.one_at_a_time else min(_MOST_MINIBATCHES, count - done)
            started = time.perf_counter()
            batch = self.buffer.sample(minibatches * size)
            sampled = time.perf_counter()
            receipt = batch.pop("receipt")
            errors = self.learner_group.update(
                batch=MultiAgentBatch(
                    {DEFAULT_MODULE_ID: SampleBatch(batch)}, env_steps=minibatches * size
                ),
                minibatch_size=self.config.train_batch_size_per_learner * self.buffer.views,
            )
            if self.buffer.prioritized:
                self.buffer.update(receipt, np.concatenate([e[TD_ERRORS] for e in errors]))
            done += minibatches
            self._warn_if_slow(sampled - started, time.perf_counter() - sampled, minibatches, done)
        self.updates += done * self.config.num_sgd_iter
        if done and not self._weights_are_shared:
            self.env_runner_group.sync_weights(
                from_worker_or_learner_group=self.learner_group, inference_only=True
            )

    def _warn_if_slow(self, batch: float, learning: float, minibatches: int, done: int) -> None:
        """One line, once, when updates take too long: see `SlownessWatch.line`."""
        again, budget = self.config.num_sgd_iter, self.config.total_timesteps
        left = None
        if budget is not None:
            left = again * (self._minibatches_due(budget) - done) - self.updates
        line = self._slowness.line(batch, learning, minibatches * again, left)
        if line is not None and self.say is not None:
            self.say(line)

    def _log(self, steps: int, updates: int, seconds: float) -> None:
        """Everything is read once per iteration."""
        if self.env_runner_group.num_remote_env_runners() == 0:
            self.metrics.aggregate([self.env_runner.get_metrics()], key=ENV_RUNNER_RESULTS)
        figures = []
        for result in self.learner_group.foreach_learner(func=lambda learner: learner.report()):
            if not result.ok:
                raise result.get()
            figures.append(result.get())
        for name in figures[0]:
            mean = float(np.mean([part[name] for part in figures]))
            self.metrics.log_value((LEARNER_RESULTS, DEFAULT_MODULE_ID, name), mean, window=1)
        for name, value in {
            "env_steps": self.env_steps,
            "updates": self.updates,
            "env_steps_per_s": steps / seconds,
            "updates_per_s": updates / seconds,
            **{f"replay/{name}": value for name, value in self.buffer.stats().items()},
        }.items():
            self.metrics.log_value(name, value, window=1)
        self.metrics.log_value((TIMERS, "collect_and_learn"), seconds, window=1)

    # -- checkpoints ---------------------------------------------------------------------------

    def get_checkpointable_components(self) -> list[tuple[str, Any]]:
        components: list[tuple[str, Any]] = super().get_checkpointable_components()
        if not self.config.checkpoint_buffer:
            return components
        return [*components, (COMPONENT_REPLAY_BUFFER, CheckpointedBuffer(self.buffer))]

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        state: dict[str, Any] = super().get_state(
            components, not_components=not_components, **kwargs
        )
        kept = self.config.checkpoint_buffer
        if kept and self._check_component(COMPONENT_REPLAY_BUFFER, components, not_components):
            state[COMPONENT_REPLAY_BUFFER] = self.buffer.get_state()
        state[COUNTERS] = {
            "env_steps": self.env_steps,
            "updates": self.updates,
            "due_from": self._due_from,
            "made_before": self._made_before,
            "iteration": self._iteration_under_way and asdict(self._iteration_under_way),
            "buffer": kept,
        }
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        if COMPONENT_REPLAY_BUFFER in state:
            self.buffer.set_state(state[COMPONENT_REPLAY_BUFFER])
        if COUNTERS in state:
            self._set_counters(state[COUNTERS])

    def _set_counters(self, counters: dict[str, Any]) -> None:
        self.env_steps = int(counters["env_steps"])
        self.updates = int(counters["updates"])
        self._due_from = int(counters.get("due_from", self.config.learning_starts))
        self._made_before = int(counters.get("made_before", 0))
        under_way = counters.get("iteration")
        self._iteration_under_way = _Iteration(**under_way) if under_way else None
        if not counters.get("buffer", True):
            # Warm up again, with the policy, and owe nothing for the time before.
            self._due_from = self.env_steps + self.config.learning_starts
            self._made_before = self.updates // self.config.num_sgd_iter
        self.env_runner_group.foreach_env_runner(
            partial(_set_steps, steps=self.env_steps), local_env_runner=False
        )

    @property
    def saves_buffer(self) -> bool:
        """Whether checkpoints hold the replay buffer."""
        return bool(self.config.checkpoint_buffer)

    @property
    def episodes_begin_anew(self) -> str | None:
        """Why a restored algorithm's episodes could not go on; None where they do."""
        if self.env_runner_group.num_remote_env_runners():
            return "env runner processes begin new ones"
        reason: str | None = self.env_runner.episodes_lost
        return reason


@dataclass
class _Iteration:
    """An iteration that has begun: up to which env step it goes, and where it came from."""

    goal: int
    first_step: int
    first_update: int
    seconds: float = 0.0


def _set_steps(runner: Any, steps: int) -> None:
    runner.num_env_steps_sampled_lifetime = steps
