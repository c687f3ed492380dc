"""From JSON to a complete configuration: defaults, a method's keys, and what contradicts itself."""

import dataclasses
import difflib
import json
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from interreplay.errors import UsageError
from interreplay.focal.settings import METHODS, SECTIONS, FocalSettings, Key, keys

_KEYS = {entry.path: entry for entry in keys()}


def read_file(path: str | Path, method: str | None = None) -> FocalSettings:
    """Read a configuration file; see `read`.

    Raises:
        UsageError: the file can't be read or is no JSON object, and as `read`.
    """
    try:
        given = json.loads(Path(path).read_text())
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}; check the path") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not JSON ({error}); mend that line") from error
    if not isinstance(given, dict):
        raise UsageError(f"{path} holds no JSON object; write its keys between {{ and }}")
    return read(given, method)


def read(given: Mapping[str, Any], method: str | None = None) -> FocalSettings:
    """Complete what was given by the defaults and by what the method sets.

    Args:
        given: nested as in the files.
        method: a name of `METHODS` that goes over the file, keys and all.

    Raises:
        UsageError: an unknown key (with the nearest known one), a value of another type or outside
            its bounds, or keys that contradict each other.
    """
    flat = _flatten(given)
    chosen = method or flat.get("method", "focal")
    _check_value(_KEYS["method"], chosen)
    for name, value in METHODS[chosen].items():
        path = f"algo_params.{name}"
        if method is None and flat.get(path, value) != value:
            raise UsageError(
                f"method {chosen} sets {path} to {json.dumps(value)} but the configuration says "
                f"{json.dumps(flat[path])}; drop one of them"
            )
        flat[path] = value
    flat["method"] = chosen
    settings = _build(flat)
    _check_together(settings)
    return settings


def _flatten(given: Mapping[str, Any]) -> dict[str, Any]:
    """Values by path, each key known and each value of its type and within its bounds."""
    flat: dict[str, Any] = {}
    for name, value in given.items():
        if name not in SECTIONS:
            flat[name] = value
        elif isinstance(value, Mapping):
            flat |= {f"{name}.{inner}": v for inner, v in value.items()}
        else:
            raise UsageError(f"{name} is {json.dumps(value)}; it must be an object of keys")
    for path, value in flat.items():
        if path not in _KEYS:
            raise UsageError(f"unknown key {path!r}; {_nearest(path)}")
        _check_value(_KEYS[path], value)
    return flat


def _nearest(path: str) -> str:
    name = path.rpartition(".")[2]
    for known in _KEYS:  # the right word in the wrong section
        if known.rpartition(".")[2] == name:
            return f"it belongs at {known!r}"
    names = {known.rpartition(".")[2]: known for known in _KEYS}
    found = difflib.get_close_matches(name, [*names, *SECTIONS], n=1, cutoff=0.0)[0]
    return f"the nearest known one is {names.get(found, found)!r}"


def _check_value(entry: Key, value: Any) -> None:
    if not _fits(value, entry.hint):
        raise UsageError(f"{entry.path} is {json.dumps(value)}; it must be {_spoken(entry.hint)}")
    rule = entry.rule
    if "choices" in rule and value not in rule["choices"]:
        options = ", ".join(map(str, rule["choices"]))
        raise UsageError(f"{entry.path} is {json.dumps(value)}; choose one of {options}")
    for number in value if isinstance(value, list | tuple) else [value]:
        if number is None or isinstance(number, str | bool):
            continue
        if "least" in rule and number < rule["least"]:
            raise UsageError(f"{entry.path} is {number}; it must be {rule['least']} or more")
        if "above" in rule and number <= rule["above"]:
            raise UsageError(f"{entry.path} is {number}; it must be above {rule['above']}")
        if "most" in rule and number > rule["most"]:
            raise UsageError(f"{entry.path} is {number}; it must be {rule['most']} or less")


def _options(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)


def _fits(value: Any, hint: Any) -> bool:
    for option in _options(hint):
        if option is type(None):
            if value is None:
                return True
        elif typing.get_origin(option) is tuple:
            if isinstance(value, list | tuple) and all(type(number) is int for number in value):
                return True
        elif option is float:
            # NaN and infinity are Python's JSON, nobody's setting.
            if type(value) in (int, float) and abs(value) < float("inf"):
                return True
        elif type(value) is option:  # exactly: True is no count of anything
            return True
    return False


def _spoken(hint: Any) -> str:
    words = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
    parts = [
        "null"
        if option is type(None)
        else "a list of whole numbers"
        if typing.get_origin(option) is tuple
        else words[option]
        for option in _options(hint)
    ]
    return " or ".join(parts)


def _build(flat: dict[str, Any]) -> FocalSettings:
    values: dict[str, Any] = {}
    for section, owner in SECTIONS.items():
        inner = {
            spec.name: _of_type(flat[path], _KEYS[path].hint)
            for spec in dataclasses.fields(owner)
            if (path := f"{section}.{spec.name}") in flat
        }
        values[section] = owner(**inner)
    top = {k: _of_type(v, _KEYS[k].hint) for k, v in flat.items() if "." not in k}
    return FocalSettings(**values, **top)


def _of_type(value: Any, hint: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    return float(value) if hint is float else value


def _check_together(settings: FocalSettings) -> None:
    algo = settings.algo_params
    if not settings.seed_list or len(set(settings.seed_list)) < len(settings.seed_list):
        raise UsageError(
            f"seed_list is {list(settings.seed_list)}; name each seed once, and at least one"
        )
    if algo.task_inference == "none" and not algo.allow_backward_z:
        raise UsageError(
            "nothing would train the encoder: task_inference is none and allow_backward_z false; "
            "change one of them"
        )
    if not algo.mb_replace and algo.meta_batch > settings.n_train_tasks:
        raise UsageError(
            f"meta_batch is {algo.meta_batch} but there are {settings.n_train_tasks} training "
            "tasks; lower it or set mb_replace to true"
        )
    if algo.use_value_penalty and not algo.use_brac:
        raise UsageError("use_value_penalty needs use_brac; set both or neither")
    if algo.actor_critic == "bcq" and (algo.use_brac or algo.value == "v"):
        raise UsageError("actor_critic bcq knows neither use_brac nor value v; leave both out")
    if algo.alpha_init > algo.alpha_max:
        raise UsageError(
            f"alpha_init is {algo.alpha_init:g} but alpha_max {algo.alpha_max:g}; raise alpha_max"
        )
    for name in ("train_epoch", "eval_epoch"):
        span = getattr(algo, name)
        if isinstance(span, tuple) and (len(span) != 2 or span[0] > span[1]):
            raise UsageError(
                f"algo_params.{name} is {list(span)}; write [first, last], a step or null"
            )
