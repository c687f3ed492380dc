"""Which recipe is meant, and which settings it has a use for."""

from typing import Any

from argument_parser import FIELDS, SELECTORS
from interreplay.errors import UsageError
from replay_buffers.catalog import CATALOG


def choose_recipe(given: dict[str, Any]) -> tuple[str, bool]:
    """The catalog name, and whether sampling is prioritized, by `--buffer` or the old selectors."""
    named = {f"--{name}": recipe for name, recipe in SELECTORS.items() if given.get(name)}
    if given.get("buffer"):
        named[f"--buffer {given['buffer']}"] = given["buffer"]
    if len(set(named.values())) > 1:
        first, second = list(named)[:2]
        raise UsageError(f"{first} and {second} name two different recipes; keep one of them")
    recipe = next(iter(named.values()), None)
    custom = given.get("custom_replay_buffer")
    if custom is False and recipe not in (None, "vanilla", "per"):
        raise UsageError(
            f"--custom_replay_buffer False and {next(iter(named))} contradict each other; "
            "drop one of them"
        )
    if custom is True and recipe in ("vanilla", "per"):
        raise UsageError(
            f"--custom_replay_buffer True and --buffer {recipe} contradict each other; "
            "drop one of them"
        )
    recipe = recipe or ("nmer" if custom else "vanilla")
    prioritized = bool(given.get("prioritized_replay")) or recipe == "per"
    if given.get("uniform_replay"):
        recipe = "vanilla"
    return ("per" if recipe == "vanilla" and prioritized else recipe), prioritized


def unused_settings(
    given: dict[str, Any], trainer: str, recipe: str, prioritized: bool
) -> dict[str, str]:
    """Settings that nothing in this run would read, each with why."""
    unused = {}
    for name, spec in FIELDS.items():
        only = spec.metadata.get("trainers", (trainer,))
        if trainer not in only:
            unused[name] = f"--{name} concerns {only[0]}, but the trainer is {trainer}; drop it"
    for name, (used, by) in _recipe_flags(given, recipe, prioritized).items():
        if not used:
            unused[name] = f"--{name} needs {by}, but this run's recipe is {recipe}; drop it"
    return unused


def check_relevance(given: dict[str, Any], unused: dict[str, str]) -> None:
    """A flag that nothing would read is an error, not a wish."""
    for name, why in unused.items():
        if given.get(name) not in (None, False):
            raise UsageError(why)
    if given.get("only_noise") and given.get("noise_multiple") is None:
        raise UsageError("--only_noise needs --noise_multiple, the size of the noise")
    if given.get("smote_interpolation") and given.get("mixup_interpolation"):
        raise UsageError("--smote_interpolation and --mixup_interpolation exclude each other")
    if given.get("smote_interpolation") and given.get("mixup_alpha") is not None:
        raise UsageError("--mixup_alpha has no meaning under --smote_interpolation; drop it")


def _recipe_flags(given: dict[str, Any], recipe: str, prioritized: bool) -> dict[str, Any]:
    """Of each flag that belongs to recipes: does this run's use it, and what would."""
    line = CATALOG[recipe]
    process = line.augmentation == "gaussian_process"
    mixes = line.augmentation == "mixture" or process
    fixed_ct = recipe == "ct" and bool(given.get("ct_fixed"))
    additive = bool(given.get("only_noise") or given.get("noise_multiple") is not None)
    of_neighbours = "recipes with nearest neighbours (nmer, bier)"
    of_mixtures = "recipes that mix (mixup, nmer, bier)"
    in_pairs = "a recipe that mixes, together with --prioritized_replay"
    paired = prioritized and line.mixes
    if process and given.get("use_queue"):
        paired, in_pairs = False, "rows mixed when they are sampled, which --use_queue's are not"
    noisy = line.augmentation == "gaussian_noise"
    return {
        "kneighbors": (line.partner == "nearest", of_neighbours),
        "furthest_neighbor": (line.partner == "nearest", of_neighbours),
        "smote_interpolation": (mixes, of_mixtures),
        "mixup_interpolation": (mixes, of_mixtures),
        "mixup_alpha": (mixes or fixed_ct, f"{of_mixtures}, or ct with --ct_fixed"),
        "prob_interpolation": (mixes, of_mixtures),
        "interp_decay_rate": (mixes, of_mixtures),
        "use_delta": (line.mixes, "recipes that mix (mixup, ct, nmer, bier)"),
        "interp_prio_update": (paired, in_pairs),
        "use_importance_sampling": (paired, in_pairs),
        "ct_fixed": (recipe == "ct", "the ct recipe"),
        "s4rl_view": (recipe == "s4rl", "the s4rl recipe"),
        "s4rl_num_views": (recipe == "s4rl", "the s4rl recipe"),
        "noise_std": (noisy and not additive, "the gaussian recipe without --only_noise"),
        "noise_multiple": (noisy, "the gaussian recipe (--only_noise)"),
        **_process_flags(given, process),
        "prioritized_replay_alpha": (prioritized, "--prioritized_replay"),
        "prioritized_replay_beta": (prioritized, "--prioritized_replay"),
        "final_prioritized_replay_beta": (prioritized, "--prioritized_replay"),
    }


# Flags of the Gaussian process, by what they need besides the bier recipe.
_PROCESS_FLAGS = {
    "": (
        *("kernel", "mean_type", "use_ard", "composite_kernel", "normalize", "gp_pca"),
        *("gpytorch", "est_lengthscales", "global_hyperparams", "per_output_hyperparams"),
        *("single_model", "multi_sample", "sample_gp_cov", "weighted_updates", "use_queue"),
        *("fp32", "cpu_only", "perform_holdout_eval"),
    ),
    "--kernel matern": ("matern_nu",),
    "--normalize": ("standardize_gpr_x",),
    "--gp_pca": ("gp_pca_components",),
    "--gpytorch": ("use_botorch", "use_priors"),
    "--est_lengthscales": ("est_lengthscale_constant",),
    "--global_hyperparams": ("mc_hyper",),
    "--global_hyperparams or --single_model": ("retrain_interval", "warmstart_global"),
    "--single_model, or --global_hyperparams without --mc_hyper": ("train_size",),
    "--use_queue": ("queue_gb", "update_hyperparams"),
    "--perform_holdout_eval": ("holdout_split",),
}


def _process_flags(given: dict[str, Any], process: bool) -> dict[str, Any]:
    """As `_recipe_flags`, for those of the Gaussian process."""
    whole, single = bool(given.get("global_hyperparams")), bool(given.get("single_model"))
    met = {
        "--kernel matern": given.get("kernel") == "matern",
        "--global_hyperparams or --single_model": whole or single,
        "--single_model, or --global_hyperparams without --mc_hyper": single
        or (whole and not given.get("mc_hyper")),
    }
    rules: dict[str, tuple[bool, str]] = {}
    for needs, names in _PROCESS_FLAGS.items():
        has = met[needs] if needs in met else not needs or bool(given.get(needs[2:]))
        by = "the bier recipe" + (f" with {needs}" if needs else "")
        rules |= dict.fromkeys(names, (process and has, by))
    return rules
