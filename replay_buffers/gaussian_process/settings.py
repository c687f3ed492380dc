"""What users choose about the Gaussian process. Needs neither numpy nor torch."""

from dataclasses import dataclass

from replay_buffers.errors import ReplayError

KERNELS = ("rq", "rbf", "matern")
SMOOTHNESS = (0.5, 1.5, 2.5)
MEANS = ("zero", "constant", "linear")


@dataclass(frozen=True)
class GaussianProcessSettings:
    """The numbers and switches of the `bier` recipe.

    Attributes:
        kernel, matern_nu, use_ard: the correlation of features; a lengthscale for each of them.
        composite_kernel: a kernel of the state times one of the action.
        mean_type: "zero", "constant" or "linear", of each output.
        normalize: features by their range and targets by mean and deviation, per neighbourhood.
        standardize_gpr_x: features by mean and deviation, too.
        gp_pca, gp_pca_components: features projected on their principal components.
        gpytorch: hyperparameters by gpytorch (Adam) rather than scikit-learn (L-BFGS).
        use_botorch: by botorch's L-BFGS instead of Adam.
        use_priors: Gamma priors on lengthscales, outputscale and noise.
        est_lengthscales, est_lengthscale_constant: no fit; a lengthscale is so many radii of the
            neighbourhood.
        global_hyperparams: one set for all neighbourhoods, fitted again after every
            `retrain_interval` rows added.
        per_output_hyperparams: a set for each output in place of one for all.
        mc_hyper, fit_batch: the global set is the mean over fits of so many neighbourhoods;
            otherwise it is fitted on train_size random rows.
        warmstart_global: a fit starts from the last one's values.
        single_model: one process on train_size random rows of the buffer instead of local ones.
        multi_sample: a synthetic row for every neighbour of a sampled row.
        use_queue, queue_gb: synthetic rows are made in advance and kept within so many GB.
        update_hyperparams: each row keeps its own set, fine-tuned when its neighbourhood changes.
        sample_gp_cov: draws from the posterior in place of its mean.
        weighted_updates: rows weigh in the critic's loss by their predictive density.
        perform_holdout_eval, holdout_split: report the error on neighbours left out.
        fp32, cpu_only: precision, and whether a GPU is left alone.
    """

    kernel: str = "rq"
    matern_nu: float = 2.5
    use_ard: bool = False
    composite_kernel: bool = False
    mean_type: str = "zero"
    normalize: bool = False
    standardize_gpr_x: bool = False
    gp_pca: bool = False
    gp_pca_components: int = 2
    gpytorch: bool = False
    use_botorch: bool = False
    use_priors: bool = False
    est_lengthscales: bool = False
    est_lengthscale_constant: float = 2.0
    global_hyperparams: bool = False
    per_output_hyperparams: bool = False
    mc_hyper: bool = False
    fit_batch: int = 256
    warmstart_global: bool = False
    train_size: int = 1000
    retrain_interval: int = 1000
    single_model: bool = False
    multi_sample: bool = False
    use_queue: bool = False
    queue_gb: float = 1.0
    update_hyperparams: bool = False
    sample_gp_cov: bool = False
    weighted_updates: bool = False
    perform_holdout_eval: bool = False
    holdout_split: float = 0.2
    fp32: bool = False
    cpu_only: bool = False


def check(settings: GaussianProcessSettings) -> None:
    """Refuse what can't be used or contradicts itself.

    Raises:
        ReplayError: naming the flags and the way out.
    """
    _check_values(settings)
    for contradicts, why in _contradictions(settings):
        if contradicts:
            raise ReplayError(why)


def _check_values(s: GaussianProcessSettings) -> None:
    for flag, value, choices in (
        ("kernel", s.kernel, KERNELS),
        ("matern_nu", s.matern_nu, SMOOTHNESS),
        ("mean_type", s.mean_type, MEANS),
    ):
        if value not in choices:
            listed = ", ".join(map(str, choices))
            raise ReplayError(f"--{flag} is {value}; choose one of {listed}")
    for flag, least in (
        ("gp_pca_components", 1),
        ("fit_batch", 1),
        ("train_size", 2),
        ("retrain_interval", 1),
    ):
        if getattr(s, flag) < least:
            raise ReplayError(f"--{flag} is {getattr(s, flag)}; it must be {least} or more")
    if s.est_lengthscale_constant <= 0 or s.queue_gb <= 0:
        raise ReplayError("--est_lengthscale_constant and --queue_gb must be above 0")
    if not 0 < s.holdout_split < 1:
        raise ReplayError(f"--holdout_split is {s.holdout_split}; it must lie between 0 and 1")


def _contradictions(s: GaussianProcessSettings) -> list[tuple[bool, str]]:
    """Pairs (is it so, what to do about it)."""
    fits = not s.est_lengthscales
    sklearn = fits and not s.gpytorch
    with_sklearn = "needs --gpytorch: scikit-learn, which fits without it, has no"
    return [
        (
            s.gpytorch and s.est_lengthscales,
            "--gpytorch fits hyperparameters and --est_lengthscales fits none; drop one of them",
        ),
        (sklearn and s.composite_kernel, f"--composite_kernel {with_sklearn} such kernel"),
        (sklearn and s.mean_type != "zero", f"--mean_type {s.mean_type} {with_sklearn} such mean"),
        (
            sklearn and s.use_ard and s.kernel == "rq",
            f"--use_ard with --kernel rq {with_sklearn} such kernel; or choose --kernel rbf",
        ),
        (s.use_priors and not s.gpytorch, "--use_priors needs --gpytorch"),
        (s.use_botorch and not s.gpytorch, "--use_botorch needs --gpytorch"),
        (
            s.gp_pca and s.composite_kernel,
            "--gp_pca mixes state and action, which --composite_kernel keeps apart; drop one",
        ),
        (s.mc_hyper and not s.global_hyperparams, "--mc_hyper needs --global_hyperparams"),
        (
            s.single_model and s.global_hyperparams,
            "--single_model has one set of hyperparameters anyway; drop --global_hyperparams",
        ),
        (
            s.warmstart_global and not (s.global_hyperparams or s.single_model),
            "--warmstart_global needs --global_hyperparams",
        ),
        (
            s.warmstart_global and s.est_lengthscales,
            "--est_lengthscales fits nothing that --warmstart_global could start; drop one",
        ),
        (s.standardize_gpr_x and not s.normalize, "--standardize_gpr_x needs --normalize"),
        (
            s.use_queue and (s.single_model or s.multi_sample),
            "--use_queue keeps rows of local models in advance; drop --single_model and "
            "--multi_sample",
        ),
        (
            s.update_hyperparams
            and (not s.use_queue or s.global_hyperparams or s.est_lengthscales),
            "--update_hyperparams needs --use_queue and fits of each neighbourhood; drop "
            "--global_hyperparams and --est_lengthscales",
        ),
    ]
