"""Words into values, and a parser that raises: for the command line of every kind of run.

Needs neither torch nor ray.
"""

import argparse
import difflib
import re
import types
import typing
from collections.abc import Callable
from typing import Any, NoReturn

from interreplay.errors import UsageError


def integer(text: Any) -> int:
    """An int; also `1e6`, but not `1.5`."""
    try:
        if isinstance(text, bool):
            raise ValueError
        number = float(text)
        if not number.is_integer():
            raise ValueError
        return int(text) if re.fullmatch(r"[+-]?\d+", str(text)) else int(number)
    except (ValueError, TypeError, OverflowError):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def real(text: Any) -> float:
    """A finite float."""
    try:
        number = float(text)
        if isinstance(text, bool) or number != number or abs(number) == float("inf"):
            raise ValueError
        return number
    except (ValueError, TypeError):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None


def boolean(text: Any) -> bool:
    """True/False, 1/0, yes/no; anything else is refused rather than taken for true."""
    value = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}.get(
        str(text).lower()
    )
    if value is None:
        raise argparse.ArgumentTypeError(f"{text!r} is neither True nor False")
    return value


def string(text: Any) -> str:
    if not isinstance(text, str):
        raise argparse.ArgumentTypeError(f"{text!r} is not text")
    return text


def reader(hint: Any) -> tuple[Callable[[Any], Any], bool]:
    """The function that reads one value of a type (`int`, `float | None`, `tuple[int, ...]`).

    And whether the type takes several values.
    """
    options = [
        kind
        for kind in (typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,))
        if kind is not type(None)
    ]
    several = typing.get_origin(options[0]) is tuple
    kind = typing.get_args(options[0])[0] if several else options[0]
    readers: dict[Any, Any] = {int: integer, float: real, bool: boolean, str: string}
    return readers[kind], several


def value_of(hint: Any, value: Any, where: str) -> Any:
    """Check and convert a value that came from a file.

    Args:
        hint: the type that is wanted.
        value: of JSON.
        where: how a message calls it, such as `seed in sweep.json`.

    Raises:
        UsageError: it is of another type.
    """
    read, several = reader(hint)
    try:
        if several:
            if not isinstance(value, list) or not value:
                raise argparse.ArgumentTypeError(f"{value!r} is not a list")
            return tuple(read(item) for item in value)
        return read(value)
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"{where}: {error}") from None


class Parser(argparse.ArgumentParser):
    """Raises UsageError where argparse prints and exits."""

    def error(self, message: str) -> NoReturn:
        unknown = re.match(r"unrecognized arguments: (\S+)", message)
        if unknown:
            flags = [option for action in self._actions for option in action.option_strings]
            close = difflib.get_close_matches(unknown[1].split("=")[0], flags, n=1)
            hint = f"did you mean {close[0]}?" if close else "--help lists all flags"
            message = f"unknown flag {unknown[1]}: {hint}"
        raise UsageError(message)
