#!/usr/bin/env python3
"""Check an installation: versions, environments, every recipe for a moment, rendering.

One line per check; exit code 1 and the way out of each failure when something is wrong.
"""

import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from importlib import metadata

REQUIRED = {
    "ray": "2.60",
    "torch": "2.13",
    "gymnasium": "1.2.2",
    "mujoco": "4.",
    "numpy": "2.",
    "scipy": "1.",
    "pandas": "",
    "matplotlib": "3.",
    "sklearn": "1.",
    "gpytorch": "1.",
    "minari": "0.5",
    "submitit": "1.",
    "tensorboardX": "2.",
    "rich": "",
}
_DISTRIBUTIONS = {"sklearn": "scikit-learn"}
# Flags that a recipe is tested with.
_FLAGS = {"bier": "--perform_holdout_eval"}
_RENDER = (
    "import gymnasium as gym; "
    "env = gym.make('InvertedPendulum-v5', render_mode='rgb_array', width=64, height=64); "
    "env.reset(seed=0); frame = env.render(); assert frame.std() > 0; print(frame.shape)"
)


def check_versions() -> str:
    """Every package imports and has a version that the project is tested with."""
    for module, prefix in REQUIRED.items():
        importlib.import_module(module)
        version = metadata.version(_DISTRIBUTIONS.get(module, module))
        if not version.startswith(prefix):
            raise RuntimeError(f"{module} is {version}, expected {prefix}*")
    ray, torch = metadata.version("ray"), metadata.version("torch")
    return f"{len(REQUIRED)} packages, ray {ray}, torch {torch}"


def check_environment() -> str:
    """MuJoCo steps an environment."""
    return _steps("HalfCheetah-v5")


def _steps(name: str) -> str:
    from interreplay.environments import make_env

    env = make_env(name)
    env.reset(seed=0)
    for _ in range(10):
        obs, *_ = env.step(env.action_space.sample())
    env.close()
    return f"{name} steps, {len(obs)} observations"


def check_dm_control() -> str:
    """One task of dm_control's suite steps, where the extra `dmc` is installed."""
    if importlib.util.find_spec("dm_control") is None:
        return "dm_control is not installed; `pip install -e '.[dmc]'` brings its tasks"
    return _steps("dmc/walker_walk")


def check_ray(stack: ExitStack) -> Callable[[], str]:
    """A private Ray starts; the recipes' runs share it."""

    def check() -> str:
        from interreplay.launch.running.private_ray import allotted_cpus, private_ray

        stack.enter_context(private_ray(0))
        return f"a private Ray is up, {allotted_cpus()} cores may be used"

    return check


def check_run(trainer: str, recipe: str, prioritized: bool) -> Callable[[], str]:
    """A short run of one trainer with one recipe."""

    def check() -> str:
        from interreplay.launch.kinds.replay import ReplayRun
        from interreplay.launch.running.run import train
        from interreplay.launch.settings.resolution import parse

        folder = tempfile.mkdtemp(prefix="smoketest-")
        try:
            command = (
                f"--trainer {trainer} --env InvertedPendulum-v5 --buffer {recipe} "
                f"--total_timesteps 300 --learning_starts 100 --timesteps_per_iteration 150 "
                f"--buffer_size 1000 --hidden_sizes 32 32 --local_dir {folder}"
            )
            command += f" {_FLAGS.get(recipe, '')}"
            if prioritized:
                command += " --prioritized_replay"
            settings, _ = parse(command.split())
            reports = train(ReplayRun(settings), quiet=True).reports()
            last = reports[-1]
            if recipe == "bier" and last["replay/gp_fallback_fraction"] > 0:
                raise RuntimeError("a Gaussian process could not be factored on ordinary rows")
            if last["updates"] != 200 or last["evaluation_return_mean"] is None:
                raise RuntimeError(f"the run ended with {last['updates']} updates instead of 200")
            return f"300 steps, 200 updates, return {last['evaluation_return_mean']:.0f}"
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    return check


def check_rendering() -> str:
    """A frame through EGL, or else OSMesa; in a process of its own, as a backend sticks."""
    failures = []
    for backend in ("egl", "osmesa"):
        run = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", _RENDER],
            env={**os.environ, "MUJOCO_GL": backend},
            capture_output=True,
            text=True,
            timeout=60,
        )
        if run.returncode == 0:
            return f"MUJOCO_GL={backend} draws frames {run.stdout.strip()}"
        lines = run.stderr.strip().splitlines()
        failures.append(f"{backend}: {lines[-1] if lines else 'no message'}")
    # Training needs no pictures: this is said, not failed.
    return (
        "no videos on this machine ("
        + "; ".join(failures)
        + "); install libegl1 or libosmesa6 to get them, training works without"
    )


def main() -> int:
    """Run all checks; 0 when all passed."""
    with ExitStack() as stack:
        return run_checks(stack)


def run_checks(stack: ExitStack) -> int:
    """Print a line per check; what a check starts for the others ends with `stack`."""
    from replay_buffers.catalog import CATALOG

    install = "run `pip install -r env/requirements.txt` in the project's root"
    report = "run it with --verbose and report what it says"
    checks: list[tuple[str, Callable[[], str], str]] = [
        ("packages", check_versions, install),
        ("environment", check_environment, "run `pip install 'gymnasium[mujoco]==1.2.2' mujoco`"),
        ("dm_control", check_dm_control, "run `pip install -e '.[dmc]'` in the project's root"),
        (
            "ray",
            check_ray(stack),
            "make /tmp writable, and see `python3 -c 'import ray; ray.init()'`",
        ),
        *(
            (f"recipe {name}", check_run("SAC", name, bool(line.partner)), report)
            for name, line in CATALOG.items()
        ),
        ("trainer TD3", check_run("TD3", "nmer", False), report),
        ("trainer DDPG", check_run("DDPG", "vanilla", True), report),
        ("rendering", check_rendering, "set MUJOCO_GL to egl or osmesa"),
    ]
    started, failed = time.perf_counter(), 0
    for name, check, way_out in checks:
        begun = time.perf_counter()
        try:
            mark, detail = "ok  ", check()
        except Exception as error:  # any failure of any check is a line, not a traceback
            failed += 1
            mark, detail = "FAIL", f"{type(error).__name__}: {error} -> {way_out}"
        seconds = time.perf_counter() - begun
        print(f"{mark} {name:<16} {seconds:5.1f} s  {' '.join(detail.split())}", flush=True)
    total = time.perf_counter() - started
    print(f"{len(checks) - failed} of {len(checks)} checks passed in {total:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
