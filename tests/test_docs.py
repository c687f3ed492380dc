"""README and docs/: links lead somewhere, commands and Python are what the code takes."""

import argparse
import ast
import importlib
import itertools
import json
import re
import shlex
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from argument_parser import FIELDS
from interreplay.cluster import command_line as cluster_command_line
from interreplay.cluster.reading import read_runs
from interreplay.environments import resolve_id
from interreplay.launch.settings import command_line, rllib_flags
from interreplay.launch.settings.resolution import plan
from replay_buffers import CATALOG, ReplayBuffer
from replay_buffers.augmentations.base import Sample
from replay_buffers.storage import REWARDS

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
DOCUMENTS = [ROOT / "README.md", *PAGES]
# Pages that the README was cut into; their lines are as short as its own.
CUT = (
    *("recipes", "bier", "environments", "flags", "many-runs", "stock-baselines", "run-folder"),
    *("adding-a-recipe", "speed"),
)
# What begins with a dash and is no flag of ours: SLURM's, and the ends of ids.
OF_OTHERS = {"--", "--gres", "--signal", "-v3", "-v4", "-v5"}
COMMAND = re.compile(r"(?:[A-Z_]+=\S+ )*(python3?|rllib|make|pip|conda) (?=\S)")


def named(path):
    return str(path.relative_to(ROOT))


def fenced(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.S | re.M)


def without_fences(text):
    return re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M)


def prose(text):
    """Without blocks of code."""
    return re.sub(r"^ {4}.*$", "", without_fences(text), flags=re.M)


def inline(text):
    """What stands between backticks, which may run over the end of a line."""
    return [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", prose(text))]


def joined(text):
    """Commands that run over several lines, in one."""
    return re.sub(r"\\\n\s*", " ", text)


def commands(path):
    """Every command of a page, from blocks and from sentences, without what explains it."""
    text = joined(path.read_text())
    lines = re.findall(r"^ {4}(?! )(.*)$", text, re.M)
    for block in fenced(text, r"\w*"):
        lines += block.splitlines()
    # "command   # what it does", or the same in columns.
    lines = [re.split(r"\s+#|\s{3,}", line)[0] for line in lines]
    yield from (line for line in lines + inline(text) if COMMAND.match(line))


ALL = [(named(path), line) for path in DOCUMENTS for line in dict.fromkeys(commands(path))]


class ParsedError(Exception):
    """A parser has taken its command line, and nothing more is to happen."""


def run_up_to_the_parser(module, words, monkeypatch):
    """Call a module's `main` with these words; its parser, when it has taken them."""
    parse = argparse.ArgumentParser.parse_args
    used = []

    def stop(parser, *arguments):
        parse(parser, *arguments)
        used.append(parser)
        raise ParsedError

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", stop)
    monkeypatch.setattr(sys, "argv", [module, *words])
    with pytest.raises(ParsedError):
        importlib.import_module(module).main()
    return used[0]


def main_module(name):
    """`python -m name` runs the package's `__main__`, if it is one."""
    folder = ROOT / Path(*name.split("."))
    return f"{name}.__main__" if folder.is_dir() else name


def check_make(words):
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.M)
    asked = [word for word in words if "=" not in word]
    assert asked and set(asked) <= set(targets)
    for variable in (word.partition("=")[0] for word in words if "=" in word):
        assert re.search(rf"^{variable} \?=", (ROOT / "Makefile").read_text(), re.M)


def check_install(words):
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for before, word in itertools.pairwise(words):
        if before in ("-r", "-f"):
            assert (ROOT / word).is_file()
        if before == "-e":
            (extra,) = re.fullmatch(r"\.\[(\w+)\]", word).groups()
            assert extra in extras["optional-dependencies"]


def check_python(words, monkeypatch):
    if words[0] == "-m":
        run_up_to_the_parser(main_module(words[1]), words[2:], monkeypatch)
    elif words[0] == "custom_training.py":
        for run in plan(words[1:]).runs:
            resolve_id(run.env)
    elif words[0] == "cluster_run.py":
        options = cluster_command_line.parse(words[1:])
        if options.input_path is not None:
            assert read_runs(options.input_path, options.extra, options.logs)
    else:
        assert (ROOT / words[0]).is_file() and words[1:] == []


@pytest.mark.parametrize(("page", "line"), ALL, ids=[f"{page}: {line}" for page, line in ALL])
def test_a_command_is_one_that_its_program_takes(page, line, monkeypatch):
    monkeypatch.chdir(ROOT)
    words = shlex.split(COMMAND.sub(r"\1 ", line, count=1))
    program, words = words[0], words[1:]
    if program in ("python", "python3"):
        check_python(words, monkeypatch)
    elif program == "rllib" and words == ["train", "--help"]:
        assert rllib_flags.build_parser().format_help()
    elif program == "rllib":
        assert words[0] == "train"
        resolve_id(rllib_flags.parse(words[1:]).env)
    elif program == "make":
        check_make(words)
    elif words != ["activate", "interreplay"]:
        check_install(words)


def test_no_command_is_overlooked():
    for path in DOCUMENTS:
        text = joined(path.read_text())
        written = set(re.findall(r"^ {4}(?! )((?:python3?|rllib|make) \S+ \S+)", text, re.M))
        found = {line for page, line in ALL if page == named(path)}
        for start in written:
            assert any(line.startswith(start.split(" #")[0].strip()) for line in found), start
    assert sum(line.startswith("python3 custom_training.py") for _, line in ALL) >= 15
    assert sum(line.startswith("rllib train") for _, line in ALL) >= 4
    assert sum(line.startswith("python -m benchmarks.") for _, line in ALL) >= 10


def anchors(path):
    """Of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", without_fences(path.read_text()), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in headings}


@pytest.mark.parametrize("path", DOCUMENTS, ids=named)
def test_every_link_resolves(path):
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        if target.startswith("https://"):
            continue
        file, _, anchor = target.partition("#")
        there = (path.parent / file).resolve() if file else path
        assert there.is_file(), target
        if anchor:
            assert anchor in anchors(there), target


def test_the_readme_is_read_in_five_minutes_and_leads_to_every_page():
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 150
    assert [line for line in lines if len(line) > 100] == []
    (rows,) = re.findall(r"\| recipe .*?\n\n", "\n".join(lines), re.S)
    assert all(row.count("|") == 5 for row in rows.strip().splitlines())  # four columns
    assert re.findall(r"^\| `(\w+)`", rows, re.M) == list(CATALOG)
    # Where to read on: one line a page.
    for page in PAGES:
        assert (
            sum(line.startswith(f"* [docs/{page.name}](docs/{page.name}): ") for line in lines) == 1
        )


@pytest.mark.parametrize("name", CUT)
def test_lines_of_a_page_are_short_but_for_tables(name):
    lines = (ROOT / "docs" / f"{name}.md").read_text().splitlines()
    assert [line for line in lines if len(line) > 100 and not line.startswith("|")] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=named)
def test_files_that_are_named_exist(path):
    """Paths of this repository between backticks; those of `recipes.md` are inside replay_buffers/."""
    roots = {p.name for p in ROOT.iterdir() if p.is_dir()}
    base = ROOT / "replay_buffers" if path.name == "recipes.md" else None
    for code in inline(path.read_text()):
        if "<" in code or not re.fullmatch(r"[\w.*-]+(/[\w.*-]*)+|\w+\.py", code):
            continue
        if code.partition("/")[0] in roots or code.endswith(".py"):
            there = [
                found for place in (ROOT, base) if place for found in place.glob(code.rstrip("/"))
            ]
            assert there, code


def test_flags_that_are_named_exist_and_every_flag_is_named():
    parsers = [command_line.build_parser(), rllib_flags.build_parser()]
    parsers.append(cluster_command_line._parser())
    known = {option for parser in parsers for option in parser._option_string_actions}
    for path in DOCUMENTS:
        for code in inline(path.read_text()):
            if re.match(r"-", code):
                assert code.split()[0].split("=")[0] in known | OF_OTHERS, f"{named(path)}: {code}"
    text = " ".join(inline((ROOT / "docs" / "flags.md").read_text()))
    ours = {
        option
        for action in parsers[0]._actions
        for option in action.option_strings
        if option.startswith("--")
    }
    missing = {option for option in ours if not re.search(rf"{option}\b(?!-)", text)}
    assert missing - {"--no_checkpoint_buffer"} == set()  # named with its dashes
    assert len(ours) > len(FIELDS)


PYTHON = [
    (named(path), number, code)
    for path in DOCUMENTS
    for number, code in enumerate(
        fenced(path.read_text(), "python")
        + [
            re.sub(r"^ {4}", "", block, flags=re.M)
            for block in re.findall(r"(?:^ {4}.*\n)+", path.read_text(), re.M)
            if re.match(r" {4}(from|import) ", block)
        ]
    )
]


@pytest.mark.parametrize(
    ("page", "code"),
    [(page, code) for page, _, code in PYTHON],
    ids=[f"{page} {number}" for page, number, _ in PYTHON],
)
def test_python_compiles_and_imports_what_exists(page, code):
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom):
            module = importlib.import_module(node.module)
            for alias in node.names:
                assert hasattr(module, alias.name), alias.name
        if isinstance(node, ast.Import):
            for alias in node.names:
                importlib.import_module(alias.name)


def example(page, start):
    (code,) = [code for name, _, code in PYTHON if name == page and code.startswith(start)]
    space: dict = {}
    exec(code, space)
    return space


def test_the_buffer_of_the_readme_is_made():
    buffer = example("README.md", "from replay_buffers import")["buffer"]
    assert (buffer.recipe.name, buffer.schema.obs_dim, buffer.schema.action_dim) == ("nmer", 17, 6)
    assert buffer.storage.capacity == 1_000_000


def test_the_augmentation_that_is_written_as_an_example_does_what_it_says():
    noise = example("docs/adding-a-recipe.md", "# replay_buffers")["RewardNoise"](0.5)
    schema = ReplayBuffer.from_catalog("vanilla", obs_dim=3, action_dim=1, capacity=9).schema
    sample = Sample(schema, np.zeros((4, schema.width), np.float32), np.ones(4, np.float32))
    noise(sample, np.random.default_rng(7))
    expected = np.zeros_like(sample.rows)
    rewards = expected[:, schema.column(REWARDS)]
    rewards += 0.5 * np.random.default_rng(7).standard_normal(rewards.shape, np.float32)
    assert (rewards != 0).all()
    np.testing.assert_allclose(sample.rows, expected, rtol=1e-6)
    assert (noise.views, noise.stats(), noise.get_state()) == (1, {}, {})


def test_the_grid_that_is_shown_is_the_one_of_the_examples():
    (grid,) = fenced((ROOT / "docs" / "many-runs.md").read_text(), "json")
    assert json.loads(grid) == json.loads((ROOT / "examples" / "sweep.json").read_text())
    runs = plan(["--config", str(ROOT / "examples" / "sweep.json")]).runs
    assert len(runs) == 2 * 2 * 2 * 3 == 24
    assert {run.agent_name for run in runs} == {
        "interreplay_round_robin_weights=1",
        "interreplay_round_robin_weights=20",
    }
