"""The command line and the JSON files it names: flags made of `Settings`' fields, read and checked.

Needs neither torch nor ray.
"""

import argparse
import difflib
import json
import typing
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from argument_parser import FIELDS, Settings
from interreplay.errors import UsageError
from interreplay.launch.settings.reading import Parser, boolean, integer, reader, real, value_of

_HINTS = typing.get_type_hints(Settings)
_NOT_SETTINGS = {"max_concurrent", "print_config", "dry_run"}


def build_parser() -> argparse.ArgumentParser:
    """The command line of `custom_training.py`; only flags that were given appear in its result."""
    parser = Parser(
        prog="custom_training.py",
        usage="custom_training.py [flags]",
        description="Train an agent with a replay recipe on a continuous control environment.",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
        formatter_class=argparse.HelpFormatter,
    )
    parser.add_argument("--config", metavar="FILE", help="JSON settings; flags win over them")
    parser.add_argument(
        "--seeds", metavar="N", nargs="+", type=integer, help="one run for each of these seeds"
    )
    parser.add_argument(
        "--max_concurrent",
        metavar="N",
        type=integer,
        help="runs at once, of several (default: as many as the cores allow)",
    )
    parser.add_argument(
        "--print_config", action="store_true", help="print the resolved settings and stop"
    )
    parser.add_argument(
        "--dry_run", action="store_true", help="print what would run, and where, and stop"
    )
    for name, spec in FIELDS.items():
        options = dict(spec.metadata)
        names = (f"--{name}", *options["aliases"])
        text = options["help"].replace("%", "%%")
        read, several = reader(_HINTS[name])
        if read is boolean and not options.get("valued"):
            parser.add_argument(*names, dest=name, action="store_true", help=text)
            continue
        if spec.default is not None:
            text += (
                f" (default: {spec.default:g})"
                if isinstance(spec.default, float)
                else (f" (default: {spec.default})")
            )
        parser.add_argument(
            *names,
            dest=name,
            type=read,
            nargs="+" if several else None,
            choices=options.get("choices"),
            metavar=None
            if options.get("choices")
            else ("N" if read in (integer, real) else "VALUE"),
            help=text,
        )
    return parser


@dataclass(frozen=True)
class CommandLine:
    """What was given, before it is completed.

    Attributes:
        flags, file: settings of the command line and of the `--config` file.
        seeds: of several runs; empty for one.
        grid: the file's `grid`: setting -> the values that runs are made with.
        max_concurrent: runs at once, if several.
        print_config, dry_run: only show the settings, or only what would run.
    """

    flags: dict[str, Any]
    file: dict[str, Any] = field(default_factory=dict)
    seeds: tuple[int, ...] = ()
    grid: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    max_concurrent: int | None = None
    print_config: bool = False
    dry_run: bool = False


def read(argv: Sequence[str]) -> CommandLine:
    """Read a command line and the file it may name.

    Raises:
        UsageError: a flag, a value or a file that can't be used.
    """
    flags: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in vars(build_parser().parse_args(list(argv))).items()
    }
    path = flags.pop("config", None)
    file, grid, seeds = read_config(path) if path else ({}, {}, ())
    given = flags.pop("seeds", None)
    for name in {"seed"} & set(flags):
        if given:
            raise UsageError(f"--{name} and --seeds contradict each other; drop one of them")
        seeds = ()
    return CommandLine(
        file=file,
        grid={name: values for name, values in grid.items() if name not in flags},
        seeds=given or seeds,
        **{name: flags.pop(name) for name in _NOT_SETTINGS & set(flags)},
        flags=flags,
    )


def _known(name: str, path: str) -> None:
    if name not in FIELDS:
        close = difflib.get_close_matches(name, [*FIELDS, "seeds", "grid"], n=1)
        hint = f"did you mean {close[0]}?" if close else "--help lists all settings"
        raise UsageError(f"unknown setting {name!r} in {path}: {hint}")


def read_config(
    path: str,
) -> tuple[dict[str, Any], dict[str, tuple[Any, ...]], tuple[int, ...]]:
    """Settings, grid and seeds of a JSON file, checked by name and type."""
    try:
        content = json.loads(Path(path).expanduser().read_text())
    except OSError as error:
        raise UsageError(f"--config {path} can't be read: {error.strerror}") from error
    except ValueError as error:  # not text, or not JSON
        raise UsageError(f"--config {path} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise UsageError(f"--config {path} must hold one JSON object of settings")
    grid = content.pop("grid", {})
    if not isinstance(grid, dict):
        raise UsageError(f"the grid in {path} must be an object: setting -> list of values")
    for name, values in grid.items():
        _known(name, path)
        if not isinstance(values, list) or not values:
            raise UsageError(f"{name} in the grid of {path} must be a list of values")
        if name in content:
            raise UsageError(f"{name} stands in {path} and in its grid; drop one of them")
    seeds = content.pop("seeds", [])
    if not isinstance(seeds, list):
        raise UsageError(f"seeds in {path} is not a list")
    for name in content:
        _known(name, path)
    return (
        {
            name: value_of(_HINTS[name], value, f"{name} in {path}")
            for name, value in content.items()
            if value is not None
        },
        {
            name: tuple(value_of(_HINTS[name], v, f"{name} in {path}") for v in values)
            for name, values in grid.items()
        },
        tuple(value_of(int, seed, f"seed in {path}") for seed in seeds),
    )
