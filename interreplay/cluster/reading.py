"""Files that say what to run: `inputs.txt`, JSON sweeps, commands. All is checked at once."""

import dataclasses
import hashlib
import json
import os
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from argument_parser import FIELDS, SELECTORS, Settings
from interreplay.cluster.jobs import TRAINING, Job
from interreplay.environments import resolve_id
from interreplay.errors import UsageError
from interreplay.launch.settings.command_line import CommandLine, read
from interreplay.launch.settings.resolution import plan
from interreplay.results import RunFolder

_COLUMNS = (
    "seed",
    "env",
    "custom_replay_buffer",
    "agent_name",
    "round_robin_weights",
    "local_dir",
    "trainer",
)
_LEGACY = {*SELECTORS, "custom_replay_buffer", "uniform_replay"}


def read_runs(path: str, extra: Sequence[str], configs: Path) -> list[Job]:
    """The training runs of a file: a JSON sweep (`*.json`) or lines of old (`inputs.txt`).

    Args:
        path: of the file.
        extra: flags for every run, which win over the file's.
        configs: where settings that no flags can express would be written.

    Raises:
        UsageError: anything in it that can't be used, with its line; two runs with one folder.
    """
    if path.endswith(".json"):
        lines = [(path, ["--config", path, *extra])]
    else:
        lines = [(f"{path} line {n}", [*argv, *extra]) for n, argv in _input_lines(path)]
    jobs: list[Job] = []
    owners: dict[str, str] = {}
    for where, argv in lines:
        try:
            found = list(_jobs(argv, configs))
        except UsageError as error:
            raise UsageError(f"{where}: {error}") from error
        for job in found:
            assert job.folder is not None
            if job.folder in owners:
                raise UsageError(
                    f"{owners[job.folder]} and {where} are the same run, in {job.folder}; "
                    "give one another seed or agent_name"
                )
            owners[job.folder] = where
        jobs += found
    if not jobs:
        raise UsageError(f"{path} asks for no run: its second line would be the first one")
    return _distinct(jobs)


def read_commands(path: str) -> list[Job]:
    """Any shell commands, one a line.

    A command's name is made of what it says, so that lines may be added anywhere later on.
    """
    jobs: list[Job] = []
    seen: Counter[str] = Counter()
    for _, line in _meaningful(path):
        seen[line] += 1
        text = line if seen[line] == 1 else f"{line} #{seen[line]}"
        words = re.sub(r"[^\w.=-]+", "_", line).strip("_")[:40]
        name = f"{words}-{_digest(text)}"
        jobs.append(Job(name, ("/bin/bash", "-c", line), os.getcwd()))
    if not jobs:
        raise UsageError(f"{path} holds no command; write one a line")
    return jobs


def _read(path: str) -> str:
    try:
        return Path(path).expanduser().read_text()
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not text: {error.reason}") from error


def _meaningful(path: str) -> Iterator[tuple[int, str]]:
    """Number and text of the lines that are neither blank nor a comment."""
    for number, line in enumerate(_read(path).splitlines(), start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield number, line.strip()


def _words(line: str, where: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from error


def _input_lines(path: str) -> Iterator[tuple[int, list[str]]]:
    """Number and flags of each run of an `inputs.txt`.

    Its first line is always the flags of every job, also when it is blank.
    """
    first, *_ = [*_read(path).splitlines(), ""]
    shared = _words(first, f"{path} line 1")
    if shared and not shared[0].startswith("-"):
        raise UsageError(
            f"{path} line 1 holds the flags of every run, such as --knn_baseline, and may be "
            f"blank, but begins with {shared[0]!r}"
        )
    for number, line in _meaningful(path):
        if number == 1:
            continue
        words = _words(line, f"{path} line {number}")
        if len(words) != len(_COLUMNS):
            raise UsageError(
                f"{path} line {number} has {len(words)} words in place of {len(_COLUMNS)}: "
                f"{' '.join(_COLUMNS)}"
            )
        yield (
            number,
            [
                *(
                    w
                    for pair in zip(_COLUMNS, words, strict=True)
                    for w in (f"--{pair[0]}", pair[1])
                ),
                *shared,
            ],
        )


def _jobs(argv: list[str], configs: Path) -> Iterator[Job]:
    line = read(argv)
    planned = plan(argv)
    if planned.print_config or planned.dry_run or planned.max_concurrent is not None:
        raise UsageError(
            "--print_config, --dry_run and --max_concurrent are not for a single run; "
            "cluster_run.py has --dry_run and --workers"
        )
    alone = not line.file and not line.grid and not line.seeds
    for settings in planned.runs:
        if "num_cpus" not in {**line.file, **line.flags}:  # whoever starts it shares out cores
            settings = dataclasses.replace(settings, num_cpus=None)
        env, _ = resolve_id(settings.env)
        place = (settings.agent_name, env, *settings.place[2:])
        folder = RunFolder.locate(settings.local_dir, *place)
        name = re.sub(r"[^\w.=+-]+", "_", "_".join(folder.path.parts[-4:]))
        if len(name) > 150:
            name = f"{name[:140]}-{_digest(name)}"
        flags, files = (tuple(argv), {}) if alone else _said(settings, line, configs / name)
        yield Job(
            name,
            (*TRAINING, *flags),
            os.getcwd(),
            str(folder.path),
            settings.total_timesteps,
            dataclasses.replace(settings, env=env),
            files,
        )


def _said(
    settings: Settings, line: CommandLine, path: Path
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Flags that mean one run of a grid; where there are none, a file of its settings as well."""
    given = {*line.file, *line.grid, *line.flags} - _LEGACY
    first = ("trainer", "env", "buffer", "prioritized_replay", "seed", "agent_name")
    flags = _flags(settings, [*first, *(n for n in FIELDS if n in given and n not in first)])
    try:
        (meant,) = plan(flags).runs
    except UsageError:
        meant = None
    if meant == settings:
        return tuple(flags), {}
    # A switch that is on by default and off here has no flag.
    kept = {name: v for name, v in settings.to_dict().items() if name != "fresh"}
    file = path.with_suffix(".settings.json").absolute()
    fresh = ("--fresh",) if settings.fresh else ()
    return ("--config", str(file), *fresh), {str(file): json.dumps(kept, indent=2) + "\n"}


def _flags(settings: Settings, names: Iterable[str]) -> list[str]:
    flags: list[str] = []
    for name in names:
        value: Any = getattr(settings, name)
        if value is None or value is False:
            continue
        flags.append(f"--{name}")
        if value is not True:
            flags += map(str, value if isinstance(value, tuple) else (value,))
    return flags


def _distinct(jobs: list[Job]) -> list[Job]:
    """Runs in several `local_dir`s may have one name: then the folder tells them apart."""
    counts = Counter(job.name for job in jobs)
    return [
        job
        if counts[job.name] == 1
        else dataclasses.replace(job, name=f"{job.name}-{_digest(str(job.folder))}")
        for job in jobs
    ]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
