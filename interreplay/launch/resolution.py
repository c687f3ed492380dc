"""From what was given to a complete run: defaults, precedence, and what contradicts itself.

Settings are resolved in this order, later ones winning: `configs/*.json` (what the environment, the
trainer and the recipe need), a preset, the file given with `--config`, the flags. Nothing is
accepted and ignored: a flag that the chosen recipe or trainer has no use for is an error.
"""

import dataclasses
import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from argument_parser import CONFIGS, FIELDS, SELECTORS, Settings
from interreplay.errors import UsageError
from interreplay.launch.command_line import read
from interreplay.launch.translation import process_settings
from replay_buffers.catalog import CATALOG
from replay_buffers.errors import ReplayError
from replay_buffers.gaussian_process.settings import GaussianProcessSettings, check


@dataclass(frozen=True)
class Plan:
    """The runs that a command line asks for, and what is to be done with them.

    Attributes:
        runs: one run's settings each; no two share a folder.
        max_concurrent: runs at once; None for as many as the cores allow.
        print_config, dry_run: only show the settings, or only what would run.
    """

    runs: list[Settings]
    max_concurrent: int | None = None
    print_config: bool = False
    dry_run: bool = False


# What a run's folder is named after; runs that differ in something else need another agent_name.
_IN_FOLDER = {
    *("agent_name", "env", "trainer", "buffer", "prioritized_replay", "seed", "uniform_replay"),
    *("custom_replay_buffer", *SELECTORS),
}


def plan(argv: Sequence[str]) -> Plan:
    """Read a command line and resolve each of its runs: the grid's combinations times the seeds.

    Raises:
        UsageError: a flag, value, file or combination that can't be used.
    """
    line = read(argv)
    if line.max_concurrent is not None and line.max_concurrent < 1:
        raise UsageError(f"--max_concurrent is {line.max_concurrent}; it must be 1 or more")
    runs: dict[tuple[str, str, str, str, int], Settings] = {}
    several = bool(line.grid) or len(line.seeds) > 1
    for values in itertools.product(*line.grid.values()):
        combination = dict(zip(line.grid, values, strict=True))
        for seed in line.seeds or (None,):
            own = combination if seed is None else {**combination, "seed": seed}
            settings = resolve(line.flags, {**line.file, **own})
            settings = _named(settings, combination)
            if several and settings.num_cpus is None:
                settings = dataclasses.replace(settings, num_cpus=1)
            runs.setdefault(settings.place, settings)
    if line.max_concurrent is not None and len(runs) == 1:
        raise UsageError("--max_concurrent needs several runs (--seeds, or a grid in --config)")
    return Plan(list(runs.values()), line.max_concurrent, line.print_config, line.dry_run)


def _named(settings: Settings, combination: dict[str, Any]) -> Settings:
    """A grid over what the folder does not show puts it into the experiment's name."""
    agent_name = settings.agent_name
    for name in combination:
        value = getattr(settings, name)
        if name not in _IN_FOLDER and value is not None:  # None: does not concern this run
            values = value if isinstance(value, tuple) else (value,)
            text = "-".join(f"{v:g}" if isinstance(v, float) else str(v) for v in values)
            agent_name += f"_{name}={text.replace('/', '-')}"
    return dataclasses.replace(settings, agent_name=agent_name)


def parse(argv: Sequence[str]) -> tuple[Settings, bool]:
    """Read and resolve the command line of one run.

    Returns:
        The resolved settings, and whether they are only to be printed.

    Raises:
        UsageError: as `plan`, and a command line that asks for several runs.
    """
    planned = plan(argv)
    if len(planned.runs) > 1:
        raise UsageError(f"one run is wanted here, but the settings ask for {len(planned.runs)}")
    return planned.runs[0], planned.print_config


def environment_key(env: str) -> str:
    """Under which name `configs/` knows an environment: without module and version.

    `dmc/walker_walk`, and `dmc.dm_control_configs.walker_walk` of old, share the entry `dmc`.
    """
    name = env.rpartition(":")[2]
    if re.match(r"dmc[./]", name):
        return "dmc"
    return re.sub(r"-v\d+$", "", name)


def _defaults(file: str, key: str) -> dict[str, Any]:
    table = json.loads((CONFIGS / file).read_text())
    values = table.get(key, table.get("default", {}))
    return {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}


def _preset(name: str | None, trainer: str, env_name: str, prioritized: bool) -> dict[str, Any]:
    """What a named preset says of this run; nothing without a name."""
    if name is None:
        return {}
    table = json.loads((CONFIGS / "presets.json").read_text()).get(name, {})
    values = {**table.get(trainer, {}), **(table["prioritized"] if prioritized else {})}
    penalties = table.get(f"actor_l2 of {trainer}", {})
    penalty = penalties.get(env_name)
    return values if penalty is None else {**values, "actor_l2": penalty}


def _without_overruled(file: dict[str, Any], flags: dict[str, Any]) -> dict[str, Any]:
    """The file's settings less those that a flag replaces under another name."""
    overruled: set[str] = set()
    recipe_names = {*SELECTORS, "custom_replay_buffer", "buffer", "uniform_replay"}
    if any(flags.get(name) not in (None, False) for name in recipe_names) or (
        "custom_replay_buffer" in flags
    ):
        overruled |= recipe_names
        if file.get("buffer") == "per":
            overruled.add("prioritized_replay")
    if flags.get("smote_interpolation"):
        overruled |= {"mixup_alpha", "mixup_interpolation"}
    if flags.get("mixup_interpolation") or "mixup_alpha" in flags:
        overruled.add("smote_interpolation")
    return {name: value for name, value in file.items() if name not in overruled}


def resolve(flags: dict[str, Any], file: dict[str, Any] | None = None) -> Settings:
    """Complete what was given by what `configs/` knows, and refuse what contradicts itself."""
    file = _without_overruled(dict(file or {}), flags)
    given = {**file, **flags}
    recipe, prioritized = choose_recipe(given)
    trainer = given.get("trainer", FIELDS["trainer"].default)
    unused = _unused(given, trainer, recipe, prioritized)
    if given.get("uniform_replay"):
        # Whatever the recipe: what belongs to it goes with it.
        given = {name: value for name, value in given.items() if name not in unused}
    else:
        # What the file says of another recipe or trainer was said of that one, not of this run.
        given = {name: v for name, v in given.items() if name in flags or name not in unused}
        _check_relevance(given, unused)
    env_name = environment_key(given.get("env", FIELDS["env"].default))
    values = {
        **_defaults("environments.json", env_name),
        **_defaults("trainers.json", trainer),
        **_defaults("recipes.json", recipe),
        **(_defaults("recipes.json", "prioritized") if prioritized else {}),
        **_preset(given.get("preset"), trainer, env_name, prioritized),
        **given,
        "buffer": recipe,
        "prioritized_replay": prioritized,
    }
    for legacy in (*SELECTORS, "custom_replay_buffer", "uniform_replay"):
        values.pop(legacy, None)
    if values.get("noise_multiple") is not None:
        values["noise_std"] = None
    if recipe == "ct" and not values.get("ct_fixed"):
        values["mixup_alpha"] = None
    if values.get("smote_interpolation"):
        values["mixup_alpha"] = None
    # A default that nothing in this run would read is not this run's setting.
    values |= {name: None for name in unused if name not in given and values.get(name)}
    settings = Settings(**values)
    _check_ranges(settings)
    _check_processes(settings)
    _check_process(settings)
    return settings


def _check_processes(settings: Settings) -> None:
    for name in ("num_workers", "num_learners"):
        if settings.local_mode and getattr(settings, name):
            raise UsageError(
                f"--local_mode keeps everything in one process but --{name} is "
                f"{getattr(settings, name)}; drop one of them"
            )
    learners = max(1, settings.num_learners)
    if settings.train_batch_size is not None and settings.train_batch_size % learners:
        raise UsageError(
            f"--train_batch_size {settings.train_batch_size} can't be shared out evenly between "
            f"{learners} learners; choose a multiple of --num_learners"
        )
    if settings.num_gpus not in (0, learners):
        raise UsageError(
            f"--num_gpus is {settings.num_gpus} but there is a GPU per learner; set "
            f"--num_learners {settings.num_gpus}, or --num_gpus to {learners} or 0"
        )
    if settings.whole_episodes:
        for name in ("rollout_fragment_length", "num_envs_per_worker"):
            if getattr(settings, name) > 1:
                raise UsageError(
                    f"--whole_episodes and --{name} {getattr(settings, name)} contradict each "
                    "other; drop one of them (--num_workers collects more episodes at once)"
                )


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


def _recipe_flags(given: dict[str, Any], recipe: str, prioritized: bool) -> dict[str, Any]:
    """Of each flag that belongs to recipes: does this run's use it, and what would."""
    line = CATALOG[recipe]
    process = line.augmentation == "gaussian_process"
    mixes = line.augmentation == "mixture" or process
    mixes_all = mixes or line.augmentation == "adaptive_mixture"
    fixed_ct = recipe == "ct" and bool(given.get("ct_fixed"))
    additive = bool(given.get("only_noise") or given.get("noise_multiple") is not None)
    of_neighbours = "recipes with nearest neighbours (nmer, bier)"
    of_mixtures = "recipes that mix (mixup, nmer, bier)"
    in_pairs = "a recipe that mixes, together with --prioritized_replay"
    paired = prioritized and line.partner is not None
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
        "use_delta": (mixes_all, "recipes that mix (mixup, ct, nmer, bier)"),
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


def _check_process(settings: Settings) -> None:
    """Refuse what the Gaussian process can't do, in its own words."""
    try:
        check(GaussianProcessSettings(**process_settings(settings)))
    except ReplayError as error:
        raise UsageError(str(error)) from error


def _unused(given: dict[str, Any], trainer: str, recipe: str, prioritized: bool) -> dict[str, str]:
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


def _check_relevance(given: dict[str, Any], unused: dict[str, str]) -> None:
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


def _check_ranges(settings: Settings) -> None:
    for name, spec in FIELDS.items():
        value, rule = getattr(settings, name), spec.metadata
        choices = rule.get("choices")
        if choices and value is not None and value not in choices:
            raise UsageError(f"--{name} is {value!r}; choose one of {', '.join(map(str, choices))}")
        for number in value if isinstance(value, tuple) else (value,):
            if number is None or isinstance(number, str):
                continue
            if "least" in rule and number < rule["least"]:
                raise UsageError(f"--{name} is {number}; it must be {rule['least']} or more")
            if "above" in rule and number <= rule["above"]:
                raise UsageError(f"--{name} is {number}; it must be above {rule['above']}")
            if "most" in rule and number > rule["most"]:
                raise UsageError(f"--{name} is {number}; it must be {rule['most']} or less")
