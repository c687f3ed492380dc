"""Every flag of a run, born here once, as a field of a typed dataclass.

`interreplay/launch/settings/command_line.py` turns the fields into argparse's flags and reads them,
`interreplay/launch/settings/resolution.py` completes what was given. Needs neither torch nor ray.
"""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from interreplay.algorithms import TRAINERS
from replay_buffers.catalog import CATALOG
from replay_buffers.gaussian_process.settings import KERNELS, MEANS, SMOOTHNESS

CONFIGS = Path(__file__).resolve().parent / "configs"


def flag(default: Any, help: str, *aliases: str, **options: Any) -> Any:
    """A field that becomes `--name` and `aliases`; `least`, `most` and `above` bound a number.

    `trainers` names those it concerns; `transient` marks what does not change a run's results.
    """
    for bound in ("least", "most", "above"):
        if bound in options and options[bound] == int(options[bound]):
            options[bound] = int(options[bound])  # messages say 4000000000, not 4000000000.0
    return field(default=default, metadata={"help": help, "aliases": aliases, **options})


@dataclass(frozen=True)
class Settings:
    """One resolved run. `None` means: does not concern this run, or is left to the trainer."""

    # -- what to run
    trainer: str = flag("SAC", "training algorithm", choices=TRAINERS)
    env: str = flag(
        "InvertedPendulum-v5",
        "Gymnasium id (MuJoCo's -v2 ids run their -v5 successors), dmc/walker_walk, module:Class",
    )
    buffer: str | None = flag(None, "replay recipe (default: vanilla)", choices=tuple(CATALOG))
    prioritized_replay: bool = flag(False, "prioritized sampling, on top of any recipe")
    seed: int = flag(42, "seeds weights, environments, exploration and replay", least=0, most=4e9)
    total_timesteps: int | None = flag(None, "budget in env steps (default: per env)", least=1)
    preset: str | None = flag(
        None, "paper: the settings of the published NMER runs", choices=("paper",)
    )
    # -- the old names of recipes
    custom_replay_buffer: bool | None = flag(
        None, "True alone means NMER, False means vanilla (or per)", valued=True
    )
    knn_baseline: bool = flag(False, "the same as --buffer nmer", "-knn_baseline")
    naive_mixup_baseline: bool = flag(False, "the same as --buffer mixup", "-naive_mixup")
    noisy_replay_baseline: bool = flag(False, "the same as --buffer gaussian", "-noisy_replay")
    s4rl_baseline: bool = flag(False, "the same as --buffer s4rl", "-s4rl")
    ct_baseline: bool = flag(False, "the same as --buffer ct", "-ct")
    gaussian_process: bool = flag(
        False, "bier from scratch: every switch below is off unless given", "-gp"
    )
    only_noise: bool = flag(False, "gaussian with additive noise of size --noise_multiple")
    uniform_replay: bool = flag(False, "real rows only, whatever the recipe named")
    # -- mixing
    kneighbors: int | None = flag(
        None, "nearest neighbours of a row (default: 10, bier: 20, -gp: 50)", "-knn", least=1
    )
    furthest_neighbor: int | None = flag(
        None, "highest rank of a neighbour that is drawn (default: -1, all k)", "-k_max", least=-1
    )
    smote_interpolation: bool = flag(False, "mix with lam ~ U(0, 1)", "-smote")
    mixup_interpolation: bool = flag(False, "mix with lam ~ Beta(a, a), the default", "-mixup")
    mixup_alpha: float | None = flag(None, "the a of Beta(a, a) (default: 0.75)", above=0)
    prob_interpolation: float | None = flag(
        None, "chance of a row being mixed at all (default: 1)", least=0, most=1
    )
    interp_decay_rate: float | None = flag(
        None, "how much that chance falls per env step, down to 0 (default: 0)", least=0
    )
    use_delta: bool = flag(False, "interpolate new_obs - obs in place of new_obs")
    interp_prio_update: bool = flag(
        False, "share a mixture's TD error between the priorities of its two parents"
    )
    ct_fixed: bool = flag(False, "ct with Beta(a, a) of --mixup_alpha, nothing learned")
    s4rl_view: str | None = flag(
        None,
        "how s4rl sees a state (default: mixup, both states with their successors, as in its paper;"
        " mixup_obs: obs alone, as in the NMER comparison)",
        choices=(
            *("gaussian", "uniform", "amplitude", "dropout", "switch", "adversarial"),
            *("mixup", "mixup_obs"),
        ),
    )
    s4rl_num_views: int | None = flag(
        None, "views of each row, averaged by the learner (default: 1)", least=1
    )
    noise_multiple: float | None = flag(
        None, "only_noise: noise in standard deviations of each dimension", least=0
    )
    noise_std: float | None = flag(
        None, "relative standard deviation of the gaussian recipe (default: 0.1)", least=0
    )
    use_importance_sampling: bool = flag(
        False, "apply prioritized weights in the recipes that mix", "-is"
    )
    prioritized_replay_alpha: float | None = flag(None, "priority exponent (default: 0.6)", least=0)
    prioritized_replay_beta: float | None = flag(
        None, "importance exponent at the start (default: 0.4)", least=0, most=1
    )
    final_prioritized_replay_beta: float | None = flag(
        None, "importance exponent at the end of the budget (default: 1)", least=0, most=1
    )
    # -- bier's Gaussian process; --buffer bier has the recommended switches on by itself
    kernel: str | None = flag(None, "covariance (default: rbf, -gp: rq)", choices=KERNELS)
    matern_nu: float | None = flag(
        None, "smoothness of the Matern kernel (default: 2.5)", choices=SMOOTHNESS
    )
    use_ard: bool = flag(False, "a lengthscale for each dimension of (obs, action)")
    composite_kernel: bool = flag(False, "a kernel of obs times a kernel of the action")
    mean_type: str | None = flag(None, "mean of each output (default: zero)", choices=MEANS)
    normalize: bool = flag(
        False, "neighbourhoods in common units: features by range, targets by mean and deviation"
    )
    standardize_gpr_x: bool = flag(
        False, "--normalize features by mean and deviation, too", "-std_x"
    )
    gp_pca: bool = flag(False, "project features on a neighbourhood's principal components")
    gp_pca_components: int | None = flag(None, "how many of them (default: 2)", least=1)
    gpytorch: bool = flag(
        False, "fit hyperparameters with gpytorch (Adam), not scikit-learn: much faster"
    )
    use_botorch: bool = flag(False, "fit with botorch's L-BFGS in place of Adam")
    use_priors: bool = flag(False, "Gamma priors on lengthscales, outputscale and noise")
    est_lengthscales: bool = flag(
        False, "fit nothing: lengthscales are multiples of the neighbourhood's radius"
    )
    est_lengthscale_constant: float | None = flag(None, "which multiples (default: 2)", above=0)
    global_hyperparams: bool = flag(
        False, "one set of hyperparameters for all, not a fit of each neighbourhood in each batch"
    )
    per_output_hyperparams: bool = flag(
        False, "a set for the reward and each dimension of new_obs, not one for all: slower"
    )
    mc_hyper: bool = flag(
        False, "the global set is the mean over fits of a batch of neighbourhoods"
    )
    train_size: int | None = flag(
        None, "random rows that a global set or single model is fitted on (default: 1000)", least=2
    )
    retrain_interval: int | None = flag(
        None, "env steps between fits of a global set or single model (default: 1000)", least=1
    )
    warmstart_global: bool = flag(False, "a fit starts from the last one's values")
    single_model: bool = flag(False, "one process for the whole buffer, not local ones")
    multi_sample: bool = flag(
        False, "each sampled row is mixed with all of its neighbours, not with one drawn"
    )
    sample_gp_cov: bool = flag(
        False, "draw from the posterior in place of taking its mean", "-gp_cov"
    )
    weighted_updates: bool = flag(
        False, "weigh rows in the critic's loss by their predictive density"
    )
    use_queue: bool = flag(False, "make 16 synthetic rows in advance for each stored row")
    queue_gb: float | None = flag(
        None, "memory for them; the oldest give way (default: 1)", above=0
    )
    update_hyperparams: bool = flag(
        False, "with --use_queue: rows keep hyperparameters, tuned when neighbours change"
    )
    fp32: bool = flag(False, "single precision in the Gaussian process")
    cpu_only: bool = flag(False, "leave a GPU alone: the Gaussian process stays on the CPU")
    perform_holdout_eval: bool = flag(
        False, "report the error on neighbours left out, next to mixtures' and nearest neighbours'"
    )
    holdout_split: float | None = flag(
        None, "share of the neighbours left out (default: 0.2)", above=0, most=0.99
    )
    # -- the loop
    round_robin_weights: float = flag(
        1.0, "replay ratio: minibatches replayed per env step", "--replay_ratio", above=0
    )
    num_sgd_iter: int = flag(1, "gradient updates on each minibatch", least=1)
    target_by_steps_sampled: bool = flag(
        False, "move the targets by tau per env step instead of per update"
    )
    learning_starts: int | None = flag(
        None, "env steps of random actions before the first update (default: per env)", least=0
    )
    train_batch_size: int | None = flag(
        None, "rows in a minibatch (default: 256)", "-batch", least=1, most=1_000_000
    )
    buffer_size: int | None = flag(
        None, "rows the replay buffer keeps (default: per trainer)", least=1
    )
    rollout_fragment_length: int = flag(1, "env steps collected before updates follow", least=1)
    whole_episodes: bool = flag(False, "collect a whole episode before its updates follow")
    timesteps_per_iteration: int = flag(1000, "env steps in an iteration", "-ts_it", least=1)
    horizon: int | None = flag(None, "time limit of an episode, in env steps", least=1)
    # -- the trainer
    gamma: float | None = flag(None, "discount (default: 0.99)", least=0, most=1)
    tau: float | None = flag(
        None, "how far targets move per update (default: per trainer)", above=0, most=1
    )
    hidden_sizes: tuple[int, ...] | None = flag(
        None, "layers of every network (default: per trainer)", least=1, most=16_384
    )
    actor_lr: float | None = flag(
        None, "learning rate of the policy (default: per trainer)", above=0
    )
    critic_lr: float | None = flag(
        None, "learning rate of the critics (default: per trainer)", above=0
    )
    actor_l2: float | None = flag(
        None, "penalty on the policy's squared weights, halved (default: 0)", least=0
    )
    alpha_lr: float | None = flag(
        None, "SAC: learning rate of the temperature (default: 3e-4)", above=0, trainers=("SAC",)
    )
    initial_alpha: float | None = flag(
        None, "SAC: temperature at the start (default: 1)", above=0, trainers=("SAC",)
    )
    target_entropy: float | None = flag(
        None, "SAC: entropy to aim for (default: -|A|)", trainers=("SAC",)
    )
    policy_delay: int | None = flag(
        None, "TD3: critic updates per policy update (default: 2)", least=1, trainers=("TD3",)
    )
    target_noise: float | None = flag(
        None, "TD3: noise on the target policy's action (default: 0.2)", least=0, trainers=("TD3",)
    )
    target_noise_clip: float | None = flag(
        None, "TD3: where that noise is clipped (default: 0.5)", least=0, trainers=("TD3",)
    )
    exploration_noise: float | None = flag(
        None, "TD3: std of Gaussian exploration (default: 0.1)", least=0, trainers=("TD3",)
    )
    ou_theta: float | None = flag(
        None,
        "DDPG: pull of the exploration noise to 0 (default: 0.15)",
        least=0,
        trainers=("DDPG",),
    )
    ou_sigma: float | None = flag(
        None, "DDPG: size of the exploration noise (default: 0.2)", least=0, trainers=("DDPG",)
    )
    n_step: int = flag(1, "rewards are summed over N steps before the bootstrap", least=1)
    huber_loss: bool = flag(False, "Huber in place of squared error for the critics")
    # -- evaluation
    evaluation_interval: int = flag(1, "iterations between evaluations", least=1)
    evaluation_num_episodes: int = flag(1, "episodes in an evaluation", least=1)
    metrics_smoothing_episodes: int = flag(
        10,
        "training episodes that reported returns are averaged over",
        "-episodes_smoothing",
        least=1,
    )
    # -- machines
    num_workers: int = flag(0, "env runner processes; 0 steps the environment in this one", least=0)
    num_envs_per_worker: int = flag(1, "environments that each env runner steps", least=1)
    num_learners: int = flag(
        0, "learner processes that share each minibatch; 0 learns in this one", least=0
    )
    num_gpus: int = flag(0, "GPUs to learn on, one per learner", least=0)
    num_cpus: int | None = flag(
        None,
        "cores per run (default: all that are allotted; 1 when there are several runs)",
        least=1,
        transient=True,
    )
    address: str | None = flag(
        None, "a running Ray cluster's address (default: a private Ray)", transient=True
    )
    local_mode: bool = flag(False, "one process and full tracebacks: for debuggers", transient=True)
    framework: str = flag("torch", "deep learning framework", choices=("torch",))
    # -- files and screen
    local_dir: str = flag("~/ray_results", "folder of all results", transient=True)
    log_dir: str | None = flag(
        None, "folder for the log of what a run shows (default: the run's own)", transient=True
    )
    agent_name: str = flag("interreplay", "folder in local_dir for this experiment")
    checkpoint_freq: int = flag(
        500, "iterations between checkpoints; 0 keeps the last one only", least=0
    )
    no_checkpoint_buffer: bool = flag(
        False,
        "leave the replay buffer out of checkpoints: a run that goes on from one warms up again",
        "--no-checkpoint_buffer",
        transient=True,
    )
    restore_path: str | None = flag(
        None, "begin from this checkpoint of another run: its networks, buffer and env steps"
    )
    wandb: bool = flag(
        False, "also report to Weights & Biases (WANDB_MODE=offline works)", transient=True
    )
    fresh: bool = flag(False, "delete this run's earlier results and start over", transient=True)
    sleep_time: float = flag(0.0, "seconds to wait before starting", least=0, transient=True)
    verbose: bool = flag(False, "show Ray's and RLlib's own messages", "-v", transient=True)

    @property
    def recipe_label(self) -> str:
        """`nmer`, `per`, or `nmer-per` for prioritized sampling under a recipe."""
        if self.prioritized_replay and self.buffer not in ("vanilla", "per"):
            return f"{self.buffer}-per"
        return "per" if self.prioritized_replay else str(self.buffer)

    @property
    def place(self) -> tuple[str, str, str, str, int]:
        """What tells this run's folder from others' in `local_dir`."""
        return (self.agent_name, self.env, self.trainer, self.recipe_label, self.seed)

    @property
    def name(self) -> str:
        """This run in a few words."""
        return f"{self.trainer} {self.recipe_label} on {self.env}, seed {self.seed}"

    def to_dict(self) -> dict[str, Any]:
        """What concerns this run, as JSON values; `--config` reads it back."""
        values = dataclasses.asdict(self)
        legacy = set(SELECTORS) | {"custom_replay_buffer", "uniform_replay"}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in values.items()
            if value is not None and name not in legacy
        }


SELECTORS = {
    "s4rl_baseline": "s4rl",
    "ct_baseline": "ct",
    "gaussian_process": "bier",
    "only_noise": "gaussian",
    "knn_baseline": "nmer",
    "naive_mixup_baseline": "mixup",
    "noisy_replay_baseline": "gaussian",
}
FIELDS = {f.name: f for f in dataclasses.fields(Settings)}
# What settings meant that a run of an older version has not written down.
DEFAULTS = {name: f.default for name, f in FIELDS.items() if f.default is not None}
TRANSIENT = frozenset(name for name, f in FIELDS.items() if f.metadata.get("transient"))
