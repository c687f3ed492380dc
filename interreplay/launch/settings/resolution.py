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
from interreplay.launch.settings.command_line import read
from interreplay.launch.settings.recommended import defaults_key, switches
from interreplay.launch.settings.relevance import check_relevance, choose_recipe, unused_settings
from interreplay.launch.settings.translation import process_settings
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
    _check_together(list(runs.values()))
    return Plan(list(runs.values()), line.max_concurrent, line.print_config, line.dry_run)


def _check_together(runs: list[Settings]) -> None:
    if len(runs) > 1 and any(run.local_mode for run in runs):
        raise UsageError("--local_mode keeps everything in one process; give it one seed")
    for name in ("num_cpus", "num_workers", "num_learners", "num_gpus", "address"):
        if len({getattr(run, name) for run in runs}) > 1:
            raise UsageError(f"runs of one command share the cores alike: a grid can't vary {name}")


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

    `dmc/walker_walk`, and `dmc.dm_control_configs.walker_walk` of old, share the entry `dmc`; the
    tasks of a family share `focal/<family>`.
    """
    name = env.rpartition(":")[2]
    if re.match(r"dmc[./]", name):
        return "dmc"
    family = re.match(r"focal/[^/]+", name)
    if family:
        return family[0]
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
        recipes = {file.get("buffer"), choose_recipe(flags)[0]}
        if len(recipes - {None}) > 1 and "bier" in recipes:
            # Another recipe's run has bier's switches written down as off, and bier's as on.
            overruled |= {f.name for f in dataclasses.fields(GaussianProcessSettings)}
            overruled.add("use_delta")
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
    of_recipe = _defaults("recipes.json", defaults_key(given, recipe))
    given = {**switches(given, of_recipe), **given}
    of_recipe = {name: value for name, value in of_recipe.items() if value is not True}
    trainer = given.get("trainer", FIELDS["trainer"].default)
    unused = unused_settings(given, trainer, recipe, prioritized)
    if given.get("uniform_replay"):
        # Whatever the recipe: what belongs to it goes with it.
        given = {name: value for name, value in given.items() if name not in unused}
    else:
        # What the file says of another recipe or trainer was said of that one, not of this run.
        given = {name: v for name, v in given.items() if name in flags or name not in unused}
        check_relevance(given, unused)
    env_name = environment_key(given.get("env", FIELDS["env"].default))
    values = {
        **_defaults("environments.json", env_name),
        **_defaults("trainers.json", trainer),
        **of_recipe,
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


def _check_process(settings: Settings) -> None:
    """Refuse what the Gaussian process can't do, in its own words."""
    try:
        check(GaussianProcessSettings(**process_settings(settings)))
    except ReplayError as error:
        raise UsageError(str(error)) from error


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
