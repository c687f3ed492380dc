"""FOCAL as an RLlib `Algorithm`: offline data in, a meta-policy out, no environment on the way."""

import time
from collections.abc import Callable, Collection
from typing import Any

import gymnasium as gym
import numpy as np
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch
from ray.rllib.utils.metrics import LEARNER_RESULTS, TIMERS

from interreplay.errors import UsageError
from interreplay.focal.acting import MetaPolicy
from interreplay.focal.bank import TaskBank, bank_rows
from interreplay.focal.bcq_learner import ContextualBCQLearner
from interreplay.focal.data import DataSource, TaskData
from interreplay.focal.focal_learner import FocalLearner
from interreplay.focal.learner import CONTEXT, ROWS, TASK
from interreplay.focal.module import ContextualBCQModule, FocalModule
from interreplay.focal.no_env_runner import NoEnvRunner
from interreplay.focal.settings import FocalSettings
from interreplay.focal.task_inference import contexts_per_task
from replay_buffers.storage import Floats

META_STATE = "meta_learning"
# Updates handed to the learner at once, as far as their rows fit in this many bytes.
_MOST_UPDATES, _MOST_BYTES = 16, 64 * 2**20


class FocalConfig(AlgorithmConfig):
    """Settings of a run: a `FocalSettings`, a data source and RLlib's `debugging(seed=...)`."""

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or Focal)
        self.settings = FocalSettings()
        self.source: DataSource | None = None
        self.train_tasks = 0  # how many the data hold: known once they are read
        self.env_runner_cls = NoEnvRunner
        self.num_env_runners = 0
        # What the learners of this project read besides.
        self.num_sgd_iter, self.actor_l2, self.target_by_steps_sampled = 1, 0.0, False
        self.tau = self.settings.algo_params.soft_target_tau

    def meta(
        self, *, settings: FocalSettings | None = None, source: DataSource | None = None
    ) -> "FocalConfig":
        """Choose the configuration and where its data come from.

        Args:
            settings: as `reading.read` gives them.
            source: is pickled into checkpoints and read again when one is restored.
        """
        if settings is not None:
            self.settings = settings
            self.tau = settings.algo_params.soft_target_tau
            self.gamma = settings.algo_params.discount
        if source is not None:
            self.source = source
        return self

    def validate(self) -> None:
        """Raises UsageError (or RLlib's own ValueError) for settings that can't work together."""
        super().validate()
        if self.source is None:
            raise UsageError("there are no data to learn from; give meta(source=...)")
        if self.num_env_runners > 0 or self.env is not None:
            raise UsageError(
                "FOCAL learns from data alone; leave environment() and num_env_runners out"
            )
        if self.num_learners > 0:
            raise UsageError(
                f"num_learners is {self.num_learners}, but the metric loss compares all tasks of a "
                "meta-batch in one place; set it to 0 (num_gpus_per_learner may be 1)"
            )
        if self.framework_str != "torch":
            raise UsageError(f"framework is {self.framework_str}; only torch is supported")

    @property
    def _bcq(self) -> bool:
        return self.settings.algo_params.actor_critic == "bcq"

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        return RLModuleSpec(
            module_class=ContextualBCQModule if self._bcq else FocalModule,
            model_config={"settings": self.settings, "train_tasks": self.train_tasks},
        )

    def get_default_learner_class(self) -> type:
        return ContextualBCQLearner if self._bcq else FocalLearner


class Focal(Algorithm):
    """Reveals offline data and updates on meta-batches of them; one `train()` is one iteration.

    Attributes:
        data: the tasks, as the source gave them.
        bank: the training tasks' rows.
        train_steps: updates so far.
        transitions_drawn: offline transitions revealed so far, as the old curves count them.
        progress: called with `train_steps` every few updates of a `train()` call, for displays.
        say: called with a line that whoever watches should see.
    """

    progress: Callable[[int], None] | None = None
    say: Callable[[str], None] | None = None

    @classmethod
    def get_default_config(cls) -> FocalConfig:
        return FocalConfig()

    def setup(self, config: AlgorithmConfig) -> None:
        self.data = config.source.load()
        obs_dim, action_dim = self.data.dimensions
        config = config.copy(copy_frozen=False)
        config.train_tasks = len(self.data.train)
        config.environment(
            observation_space=gym.spaces.Box(-np.inf, np.inf, (obs_dim,), np.float32),
            action_space=gym.spaces.Box(-1.0, 1.0, (action_dim,), np.float32),
        )
        config.freeze()
        self.config = config
        super().setup(config)
        self.algo = config.settings.algo_params
        if not self.algo.mb_replace and self.algo.meta_batch > config.train_tasks:
            raise UsageError(
                f"meta_batch is {self.algo.meta_batch} but the data hold {config.train_tasks} "
                "training tasks; lower it or set mb_replace to true"
            )
        seed = config.seed or 0
        self._rng = np.random.default_rng(config.seed)
        self.bank = TaskBank(self.data.train, self.data.observation_scale, seed)
        self.train_steps = self.transitions_drawn = 0

    def training_step(self) -> None:
        """One iteration: reveal its data, then `num_train_steps_per_itr` updates."""
        started = time.perf_counter()
        self._reveal()
        goal = self.train_steps + self.algo.num_train_steps_per_itr
        while self.train_steps < goal:
            self._update(min(self._updates_at_once, goal - self.train_steps))
            if self.progress is not None:
                self.progress(self.train_steps)
        self._log(time.perf_counter() - started)

    def _reveal(self) -> None:
        """num_initial_steps of every task at first, then some more of a few tasks each time."""
        algo, tasks = self.algo, np.arange(len(self.bank))
        if algo.data_schedule == "all":
            if self.train_steps == 0:
                self.bank.reveal_all()
                self.transitions_drawn = int(self.bank.counts.sum())
            return
        if self.train_steps == 0:
            self.bank.reveal(tasks, algo.num_initial_steps)
            self.transitions_drawn += algo.num_initial_steps * len(tasks)
        count = algo.num_steps_prior + algo.num_steps_posterior + algo.num_extra_rl_steps_posterior
        chosen = self._rng.choice(tasks, algo.num_tasks_sample)
        self.bank.reveal(chosen, count)
        self.transitions_drawn += count * len(chosen)

    @property
    def _updates_at_once(self) -> int:
        algo = self.algo
        drawn = algo.batch_size + contexts_per_task(algo) * algo.embedding_batch_size
        size = 4 * algo.meta_batch * drawn * self.bank.layout.width
        return max(1, min(_MOST_UPDATES, _MOST_BYTES // size))

    def meta_batches(self, count: int) -> dict[str, Any]:
        """Columns of `count` updates end to end: `rows`, `context`, `task` of `MetaLearner`."""
        algo, contexts = self.algo, contexts_per_task(self.algo)
        drawn = algo.batch_size + contexts * algo.embedding_batch_size
        tasks, blocks = [], []
        for _ in range(count):  # update by update: how many at once changes nothing that is drawn
            chosen = self._rng.choice(len(self.bank), algo.meta_batch, replace=algo.mb_replace)
            tasks.append(chosen)
            blocks.append(self.bank.sample(chosen, drawn, self._rng))
        block = np.concatenate(blocks)
        seen = self.bank.layout.context(algo.use_next_obs_in_context)
        context = np.ascontiguousarray(block[:, algo.batch_size :, seen])
        shape = (len(block), contexts, algo.embedding_batch_size, context.shape[-1])
        return {
            ROWS: block[:, : algo.batch_size],
            CONTEXT: context.reshape(shape),
            TASK: np.concatenate(tasks),
        }

    def _update(self, count: int) -> None:
        batch = SampleBatch(self.meta_batches(count))
        self.learner_group.update(
            batch=MultiAgentBatch({DEFAULT_MODULE_ID: batch}, env_steps=len(batch)),
            minibatch_size=self.algo.meta_batch,
        )
        self.train_steps += count

    def _log(self, seconds: float) -> None:
        """The old names, read from the learner once per iteration."""
        for result in self.learner_group.foreach_learner(func=lambda learner: learner.report()):
            if not result.ok:
                raise result.get()
            for name, value in result.get().items():
                self.metrics.log_value((LEARNER_RESULTS, DEFAULT_MODULE_ID, name), value, window=1)
        for name, value in {
            "Number of train steps total": self.train_steps,
            "Number of env steps total": self.transitions_drawn,
            "Epoch": self.iteration,
            "Train Time (s)": seconds,
            "updates_per_s": self.algo.num_train_steps_per_itr / seconds,
            "visible_fraction": float(self.bank.visible.sum() / self.bank.counts.sum()),
        }.items():
            self.metrics.log_value(name, value, window=1)
        self.metrics.log_value((TIMERS, "learn"), seconds, window=1)

    # -- what has been learned -----------------------------------------------------------------

    def meta_policy(self, seed: int = 0) -> MetaPolicy:
        """The policy as it is now (and as it will be: the weights are shared)."""
        module = self.learner_group._learner.module[DEFAULT_MODULE_ID]
        return MetaPolicy(module, self.data.observation_scale, seed)

    def embed(self, data: TaskData, seed: int = 0) -> tuple[Floats, Floats]:
        """Mean and variance of z `[latent]` from a context of the task's own offline data (IID)."""
        rows = bank_rows(data, None)
        rng = np.random.default_rng([seed, data.task])
        chosen = rows[rng.integers(len(rows), size=self.algo.embedding_batch_size)]
        ends = np.cumsum(self.bank.layout.sizes)[:3]
        obs, actions, rewards, rest = np.split(chosen, ends, axis=1)
        new_obs = rest[:, : obs.shape[1]]
        return self.meta_policy().infer(obs, actions, rewards[:, 0], new_obs)

    # -- checkpoints -----------------------------------------------------------------------------

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
        state[META_STATE] = {
            **self.bank.get_state(),
            "generator": self._rng.bit_generator.state,
            "train_steps": self.train_steps,
            "transitions_drawn": self.transitions_drawn,
        }
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint.

        Raises:
            UsageError: the data are not those it was made with.
        """
        mine = state.get(META_STATE)
        if mine is not None and mine["fingerprint"] != self.bank.fingerprint:
            raise UsageError(
                "the data have changed since this checkpoint was written; put the old ones back, "
                "or start anew with --fresh"
            )
        super().set_state(state)
        if mine is not None:
            self.bank.visible = np.array(mine["visible"])
            self._rng.bit_generator.state = mine["generator"]
            self.train_steps = int(mine["train_steps"])
            self.transitions_drawn = int(mine["transitions_drawn"])
