"""Every key of a FOCAL configuration, its default and its meaning, born here once.

`reading` turns JSON into these and refuses what it doesn't know. Needs neither torch nor ray.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, get_type_hints

POWERS = ("inverse_square", "inverse", "linear", "square")
DIVERGENCES = ("kl", "w", "mmd")

# What each method of the paper's comparisons sets in `algo_params`.
_PEARL = {
    "task_inference": "none",
    "use_information_bottleneck": True,
    "allow_backward_z": True,
}
_NO_BRAC = {"use_brac": False, "use_value_penalty": False}
METHODS: dict[str, dict[str, Any]] = {
    "focal": {},
    "focal_probabilistic": {"use_information_bottleneck": True},
    "focal_coupled": {"allow_backward_z": True},
    "batch_pearl": {**_PEARL, **_NO_BRAC},
    "batch_pearl_brac": {**_PEARL, "use_brac": True},
    "contextual_bcq": {
        "actor_critic": "bcq",
        "task_inference": "none",
        "allow_backward_z": True,
        **_NO_BRAC,
    },
    "supervised": {"task_inference": "supervised"},
}


def key(default: Any, help: str, **rule: Any) -> Any:
    """A field of a configuration; `choices`, `least`, `above` and `most` bound its value."""
    return field(default=default, metadata={"help": help, **rule})


@dataclass(frozen=True)
class AlgoParams:
    """The algorithm (`algo_params`)."""

    # -- the loop
    meta_batch: int = key(16, "tasks in an update", least=2)
    batch_size: int = key(256, "transitions per task for policy and critics", least=1)
    embedding_batch_size: int = key(64, "transitions in a task's context", least=1)
    num_iterations: int = key(500, "iterations, each followed by an evaluation", least=1)
    num_train_steps_per_itr: int = key(2000, "updates in an iteration", least=1)
    mb_replace: bool = key(True, "draw the tasks of an update with replacement")
    num_initial_steps: int = key(2000, "offline transitions of each task visible first", least=1)
    num_tasks_sample: int = key(5, "tasks that reveal more data each iteration", least=0)
    num_steps_prior: int = key(400, "transitions revealed by each of them", least=0)
    num_steps_posterior: int = key(0, "further transitions revealed by each", least=0)
    num_extra_rl_steps_posterior: int = key(400, "still further ones, as of old", least=0)
    data_schedule: str = key(
        "gradual",
        "gradual: data become visible as the four keys above say; all: at once",
        choices=("gradual", "all"),
    )
    # -- task inference
    task_inference: str = key(
        "metric",
        "what trains the encoder: the distance metric loss, the tasks' identities, or only what "
        "allow_backward_z lets through",
        choices=("metric", "supervised", "none"),
    )
    metric_power: str = key(
        "inverse_square", "how different tasks repel each other", choices=POWERS
    )
    metric_form: str = key(
        "paper",
        "paper: squared distances; code: as the old code computed",
        choices=("paper", "code"),
    )
    z_loss_weight: float = key(10.0, "weight of the encoder's own loss", least=0)
    use_information_bottleneck: bool = key(False, "a Gaussian z with a KL cost, as in PEARL")
    kl_lambda: float = key(0.1, "weight of that KL to N(0, 1)", least=0)
    use_next_obs_in_context: bool = key(False, "contexts hold (s, a, r, s') instead of (s, a, r)")
    allow_backward_z: bool = key(False, "let the Bellman loss train the encoder (coupled)")
    sparse_rewards: bool = key(False, "sparse rewards in contexts and returns; Bellman: dense")
    # -- actor and critic
    actor_critic: str = key("sac", "learner of policy and values", choices=("sac", "bcq"))
    value: str = key("q", "bootstrap from twin target Qs, or from a V network", choices=("q", "v"))
    discount: float = key(0.99, "gamma", least=0, most=1)
    soft_target_tau: float = key(0.005, "speed of the target networks", above=0, most=1)
    policy_lr: float = key(3e-4, "learning rate of the policy", above=0)
    qf_lr: float = key(3e-4, "learning rate of the Q functions", above=0)
    vf_lr: float = key(3e-4, "learning rate of the V network", above=0)
    context_lr: float = key(3e-4, "learning rate of the encoder", above=0)
    reward_scale: float = key(5.0, "factor of rewards in the Bellman update", above=0)
    max_entropy: bool = key(True, "entropy bonus with coefficient 1")
    policy_mean_reg_weight: float = key(1e-3, "weight of the policy's mean^2", least=0)
    policy_std_reg_weight: float = key(1e-3, "weight of the policy's log_std^2", least=0)
    # -- behaviour regularisation
    use_brac: bool = key(True, "keep the policy near the behaviour (BRAC)")
    divergence_name: str = key("kl", "by which divergence", choices=DIVERGENCES)
    use_value_penalty: bool = key(False, "subtract alpha * divergence from the next state's value")
    c_lr: float = key(1e-4, "learning rate of the dual critic (mmd: of the cloned policy)", above=0)
    c_iter: int = key(3, "steps of it in an update", least=1)
    train_alpha: bool = key(True, "let alpha follow the divergence")
    alpha_init: float = key(500.0, "first weight of the divergence", least=0)
    alpha_max: float = key(2000.0, "largest weight of the divergence", least=0)
    alpha_lr: float = key(1.0, "learning rate of alpha", above=0)
    target_divergence: float = key(0.05, "divergence at which alpha rests", least=0)
    # -- data and evaluation
    data_dir: str | None = key(None, "data sets, ours or of the old layout (null: ./data/<env>)")
    n_trj: int = key(50, "trajectories per task and checkpoint", least=1)
    sample: int = key(1, "1: stochastic trajectories, 0: deterministic ones", choices=(0, 1))
    train_epoch: int | tuple[int, ...] | None = key(
        None, "behaviour checkpoints to train on: a step, [first, last] or null for all", least=0
    )
    eval_epoch: int | tuple[int, ...] | None = key(
        None, "those that evaluation contexts use", least=0
    )
    max_path_length: int = key(200, "steps of an evaluation episode", least=1)
    num_evals: int = key(2, "independent evaluations of each task", least=1)
    num_steps_per_eval: int = key(600, "steps in each of them", least=1)
    num_exp_traj_eval: int = key(1, "episodes with the prior's z before z is inferred", least=0)
    dump_eval_paths: bool = key(False, "keep the evaluation's trajectories")


@dataclass(frozen=True)
class EnvParams:
    """The task family (`env_params`)."""

    n_tasks: int | None = key(None, "tasks that exist (null: those trained and evaluated)", least=1)
    randomize_tasks: bool = key(True, "draw tasks at random (false: evenly spaced)")
    max_episode_steps: int = key(200, "time limit of an episode", least=1)
    goal_radius: float = key(0.2, "how near a sparse goal begins to pay", above=0)
    forward_backward: bool = key(False, "ant-dir: only the directions 0 and pi")
    variant: str | None = key(None, "null: the family of FOCAL's paper; latest: of later papers")
    task_seed: int = key(0, "seeds the tasks and their split", least=0)


@dataclass(frozen=True)
class UtilParams:
    """Where results go and what computes them (`util_params`)."""

    base_log_dir: str = key("output", "folder of all results")
    use_gpu: bool = key(False, "learn on a GPU where there is one")
    gpu_id: int = key(0, "which", least=0)


@dataclass(frozen=True)
class FocalSettings:
    """A complete configuration."""

    env_name: str = key("sparse-point-robot", "task family")
    method: str = key(
        "focal", "a method of the paper's comparisons; sets its algo_params", choices=tuple(METHODS)
    )
    n_train_tasks: int = key(2, "tasks that are learned from", least=2)
    n_eval_tasks: int = key(2, "tasks held out", least=1)
    latent_size: int = key(20, "dimensions of z", least=1)
    net_size: int = key(256, "width of the three layers of policy and critics", least=1)
    seed_list: tuple[int, ...] = key((0, 1, 2), "one run per seed", least=0)
    algo_params: AlgoParams = field(default_factory=AlgoParams)
    env_params: EnvParams = field(default_factory=EnvParams)
    util_params: UtilParams = field(default_factory=UtilParams)

    def as_dict(self) -> dict[str, Any]:
        """As JSON knows it: what `reading.read` takes back."""
        return dataclasses.asdict(self)


SECTIONS: dict[str, type] = {
    "algo_params": AlgoParams,
    "env_params": EnvParams,
    "util_params": UtilParams,
}


@dataclass(frozen=True)
class Key:
    """One key: its path such as `algo_params.meta_batch`, type, default, meaning and bounds."""

    path: str
    hint: Any
    default: Any
    rule: dict[str, Any]


def keys() -> Iterator[Key]:
    """All keys, those of the top level first."""
    for section, owner in [("", FocalSettings), *SECTIONS.items()]:
        hints = get_type_hints(owner)
        defaults = owner()
        for spec in dataclasses.fields(owner):
            if spec.name not in SECTIONS:
                path = f"{section}.{spec.name}" if section else spec.name
                default = getattr(defaults, spec.name)
                yield Key(path, hints[spec.name], default, dict(spec.metadata))


def describe() -> str:
    """Every key with its default, its meaning and what it may be, one a line."""
    lines = []
    for entry in keys():
        rule = entry.rule
        bounds = [
            f"{word} {rule[name]}"
            for name, word in (("least", "at least"), ("above", "above"), ("most", "at most"))
            if name in rule
        ]
        if "choices" in rule:
            bounds = [" | ".join(map(str, rule["choices"]))]
        told = f"  ({', '.join(bounds)})" if bounds else ""
        shown = {True: "true", False: "false", None: "null"}
        default = entry.default
        text = shown[default] if default is None or isinstance(default, bool) else str(default)
        text = str(list(default)) if isinstance(default, tuple) else text
        lines.append(f"{entry.path:<44} {text:<20} {rule['help']}{told}")
    return "\n".join(lines)
