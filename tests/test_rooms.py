"""Who may import whom: the import table of the house, enforced."""

import ast
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Room -> (rooms of ours, packages of others). The standard library is everyone's.
TABLE = {
    "replay_buffers": (
        {"replay_buffers"},
        {"numpy", "scipy", "torch", "gpytorch", "sklearn", "botorch"},
    ),
    "interreplay/environments": (
        {"interreplay.environments", "interreplay.errors"},
        {"gymnasium", "mujoco", "numpy", "dm_control", "shimmy", "matplotlib"},
    ),
    "interreplay/environments/families": (
        {"interreplay.environments", "interreplay.errors"},
        {"gymnasium", "mujoco", "numpy", "matplotlib"},
    ),
    "interreplay/algorithms": (
        {
            "interreplay.algorithms",
            "interreplay.environments",
            "interreplay.errors",
            "replay_buffers",
        },
        {"ray", "torch", "numpy", "gymnasium"},
    ),
    "interreplay/focal": (
        {
            "interreplay.focal",
            "interreplay.algorithms",
            "interreplay.environments",
            "interreplay.errors",
            "replay_buffers",
        },
        {"ray", "torch", "numpy", "gymnasium"},
    ),
    "interreplay/results": (
        {"interreplay.results", "interreplay.errors"},
        {"numpy", "pandas", "matplotlib", "sklearn"},
    ),
    "interreplay/cluster": (
        {
            "interreplay.cluster",
            "interreplay.environments",
            "interreplay.errors",
            "interreplay.launch",
            "interreplay.results",
            "argument_parser",
        },
        set(),
    ),
    "interreplay/launch": (
        {"interreplay", "replay_buffers", "argument_parser"},
        {"ray", "torch", "numpy", "rich", "tensorboardX", "wandb"},
    ),
    # One way only: commands, kinds, running, screen; kinds and commands read settings.
    "interreplay/launch/kinds": (
        {
            "interreplay.algorithms",
            "interreplay.environments",
            "interreplay.errors",
            "interreplay.launch.running",
            "interreplay.launch.settings",
            "interreplay.results",
            "replay_buffers",
            "argument_parser",
        },
        set(),
    ),
    "interreplay/launch/running": (
        {
            "interreplay.errors",
            "interreplay.launch.running",
            "interreplay.launch.screen",
            "interreplay.results",
            "replay_buffers.errors",
            "replay_buffers.memory",
        },
        {"ray", "torch", "numpy", "rich", "tensorboardX", "wandb"},
    ),
    "interreplay/launch/screen": (
        {"interreplay.errors", "interreplay.launch.screen", "interreplay.results"},
        {"rich"},
    ),
    "interreplay/launch/settings": (
        {
            "interreplay.algorithms",
            "interreplay.errors",
            "interreplay.launch.settings",
            "replay_buffers",
            "argument_parser",
        },
        set(),
    ),
}
# Where a package may only be imported inside the function that needs it.
LAZY = {
    "interreplay/environments": {"dm_control", "shimmy", "matplotlib"},
    "interreplay/launch": {"ray", "torch", "tensorboardX", "wandb"},
    "interreplay/launch/settings": {"numpy", "pandas", "gymnasium"},
    "replay_buffers": {"gpytorch", "sklearn", "botorch"},
}
LAZY_FILES = {
    "argument_parser.py": {"ray", "torch"},
    "cluster_run.py": {"ray", "torch"},
    "custom_training.py": {
        "ray",
        "torch",
        "interreplay.launch.running",
        "interreplay.launch.kinds",
    },
    "smoketest.py": {"ray", "torch"},
}


def imports(path):
    """(name, at the top of the file) of every import, type-checking ones left out."""
    tree = ast.parse(path.read_text())
    guarded = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    top = {id(node) for node in tree.body}
    for node in ast.walk(tree):
        if id(node) in guarded:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, id(node) in top) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, id(node) in top


def within(name, rooms):
    return any(name == room or name.startswith(room + ".") for room in rooms)


@pytest.mark.parametrize("room", TABLE)
def test_a_room_imports_only_what_its_row_allows(room):
    ours, others = TABLE[room]
    files = list((ROOT / room).rglob("*.py"))
    assert files
    for path in files:
        for name, at_top in imports(path):
            package = name.split(".")[0]
            if package in sys.stdlib_module_names:
                continue
            assert within(name, ours) or package in others, (
                f"{path.relative_to(ROOT)} imports {name}"
            )
            if at_top:
                assert package not in LAZY.get(room, ()), (
                    f"{path.relative_to(ROOT)} imports {name} at its top"
                )


@pytest.mark.parametrize("file", LAZY_FILES)
def test_commands_import_what_is_slow_only_when_they_need_it(file):
    for name, at_top in imports(ROOT / file):
        assert not (at_top and within(name, LAZY_FILES[file])), f"{file} imports {name} at its top"


def test_modules_of_launching_import_each_other_in_one_direction():
    """No circle, function-level imports included: each module can be read before its users."""
    base = ROOT / "interreplay" / "launch"
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): {
            name for name, _ in imports(path) if within(name, {"interreplay.launch"})
        }
        for path in base.rglob("*.py")
    }
    order = TopologicalSorter(modules)
    order.prepare()  # raises CycleError


def test_every_package_is_in_the_table():
    rooms = {p.parent.relative_to(ROOT) for p in (ROOT / "interreplay").rglob("*.py")} - {
        Path("interreplay")
    }
    assert {str(r) for r in rooms} == {r for r in TABLE if r.startswith("interreplay/")}


def test_root_scripts_hold_no_logic():
    assert len((ROOT / "custom_training.py").read_text().splitlines()) <= 120


def test_no_global_random_generators():
    for folder in ("replay_buffers", "interreplay"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "np.random":
                    assert node.attr in ("Generator", "default_rng", "SeedSequence"), (
                        f"{path}: np.random.{node.attr}"
                    )
