"""Many runs: the real command, its pictures and records, and the flags about where runs go."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image
from rich.console import Console

from interreplay.errors import UsageError
from interreplay.launch.kinds.replay import ReplayRun
from interreplay.launch.running import sweep
from interreplay.launch.running.run import folder_of, train
from interreplay.launch.running.sweep import run_many as run_kinds
from interreplay.launch.screen.many_display import ManyDisplay
from interreplay.launch.settings.resolution import parse, plan
from interreplay.results import RunFolder, seeds_curve

ROOT = Path(__file__).parents[1]
TINY = {
    "total_timesteps": 60,
    "learning_starts": 20,
    "timesteps_per_iteration": 20,
    "hidden_sizes": [8],
    "train_batch_size": 8,
    "buffer_size": 100,
}


def run_many(settings, max_concurrent=None):
    return run_kinds([ReplayRun(run) for run in settings], max_concurrent)


def command(*flags, **env):
    return subprocess.run(
        [sys.executable, str(ROOT / "custom_training.py"), *map(str, flags)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, **env},
    )


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """Two environments, one of which fails, two seeds."""
    place = tmp_path_factory.mktemp("sweep")
    file = place / "grid.json"
    grid = {"env": ["InvertedPendulum-v5", "tests.fake_envs:Nan-v0"]}
    file.write_text(json.dumps({**TINY, "buffer": "nmer", "grid": grid, "seeds": [0, 1]}))
    ran = command("--config", file, "--local_dir", place / "out", "--log_dir", place / "logs")
    return place, file, ran


def test_a_run_that_fails_does_not_stop_the_others(swept):
    place, _, ran = swept
    assert ran.returncode == 1, ran.stderr
    assert "Traceback" not in ran.stdout + ran.stderr
    assert "2 of 4 runs have finished" in ran.stdout
    assert "4 runs, " in ran.stdout
    failed = [line for line in ran.stdout.splitlines() if line.startswith("failed: ")]
    assert len(failed) == 2
    assert all("returned observation[1] = nan" in line for line in failed)
    states = {
        path.parent.name: json.loads(path.read_text())["state"]
        for path in (place / "out").rglob("run.json")
    }
    assert states == {"seed0": "finished", "seed1": "finished"}


def test_each_run_has_the_folder_the_log_and_the_results_it_has_alone(swept, tmp_path, ray_session):
    place, _, _ = swept
    folder = RunFolder(place / "out/interreplay/InvertedPendulum-v5/SAC-nmer/seed1")
    alone = tmp_path / "alone.json"
    alone.write_text(json.dumps({**TINY, "buffer": "nmer", "seed": 1, "num_cpus": 1}))
    single = train(
        ReplayRun(parse(["--config", str(alone), "--local_dir", str(tmp_path)])[0]), quiet=True
    )
    keys = ("env_steps", "updates", "evaluation_return_mean")
    mine, theirs = ([[r[k] for k in keys] for r in f.reports()] for f in (folder, single))
    assert mine == theirs
    assert len(mine) == 4
    log = place / "logs" / "interreplay_InvertedPendulum-v5_SAC-nmer_seed1.log"
    assert "step        60 of 60" in log.read_text()
    assert not folder.log.exists()
    assert "step        60 of 60" in single.log.read_text()  # without --log_dir


def test_seeds_get_a_picture(swept):
    place, _, _ = swept
    picture = place / "out/interreplay/InvertedPendulum-v5/SAC-nmer/seeds.png"
    image = Image.open(picture).convert("RGB")
    colours = {colour for _, colour in image.getcolors(1 << 20)}
    assert (0, 114, 178) in colours  # seed 0's line
    assert (230, 159, 0) in colours  # seed 1's
    assert seeds_curve(place) is None  # a folder without runs


def test_finished_runs_are_not_run_again(swept):
    place, file, _ = swept
    again = command("--config", file, "--local_dir", place / "out", "--env", "InvertedPendulum-v5")
    assert again.returncode == 0, again.stderr
    assert "2 of 2 runs have finished already" in again.stdout
    assert " at once" not in again.stdout


def test_a_dry_run_lists_runs_and_folders_and_makes_nothing(tmp_path):
    flags = [
        "--buffer",
        "nmer",
        "--seeds",
        "3",
        "4",
        "--local_dir",
        str(tmp_path / "out"),
        "--dry_run",
    ]
    ran = command(*flags)
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    runs = plan(flags).runs
    assert len(lines) == 2
    for line, run in zip(lines, runs, strict=True):
        assert str(folder_of(ReplayRun(run)).path) in line
        assert "50,000 env steps, to run" in line
    assert list(tmp_path.iterdir()) == []


def test_what_will_fail_fails_before_anything_starts(tmp_path):
    for flags in ("--env CartPole-v1", "--local_mode"):
        with pytest.raises(UsageError):
            run_many(plan(f"{flags} --seeds 0 1 --local_dir {tmp_path / 'out'}".split()).runs)
    with pytest.raises(UsageError, match="can't be written"):
        run_many(plan(["--seeds", "0", "1", "--local_dir", "/proc/nowhere"]).runs)
    for grid, message in {
        '"env": ["HalfCheetah-v2", "HalfCheetah-v5"]': "HalfCheetah-v2.* and .* on HalfCheetah-v5, seed 42 are the same",
        '"num_workers": [0, 1]': "a grid can't vary num_workers",
    }.items():
        file = tmp_path / "grid.json"
        file.write_text(f'{{"grid": {{{grid}}}}}')
        with pytest.raises(UsageError, match=message):
            run_many(plan(["--config", str(file), "--local_dir", str(tmp_path / "out")]).runs)
        file.unlink()
    assert list(tmp_path.iterdir()) == []


def test_max_concurrent_and_the_cores_say_how_many_run_at_once(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        sweep,
        "run_with_tune",
        lambda runs, at_once, _: asked.append((at_once, runs[0].machine.cores)) or {},
    )
    monkeypatch.setattr(sweep, "allotted_cpus", lambda: 12)
    for flags in ("", "--max_concurrent 3", "--num_cpus 2 --num_workers 1", "--num_cpus 32"):
        run_many(
            plan(f"--seeds 0 1 --local_dir {tmp_path / 'out'} {flags}".split()).runs,
            plan(f"--seeds 0 1 {flags}".split()).max_concurrent,
        )
    assert asked == [(12, 1), (3, 1), (4, 3), (1, 32)]


def test_wandb_offline_leaves_its_run_in_the_folder(tmp_path):
    file = tmp_path / "c.json"
    file.write_text(json.dumps(TINY))
    flags = ("--config", file, "--local_dir", tmp_path / "out")
    clean = {"WANDB_API_KEY": "", "HOME": str(tmp_path), "WANDB_CONFIG_DIR": str(tmp_path)}
    ran = command(*flags, "--wandb", WANDB_MODE="offline", **clean)
    assert ran.returncode == 0, ran.stderr
    (run,) = (tmp_path / "out").rglob("offline-run-*")
    (data,) = run.glob("*.wandb")
    assert b"evaluation_return_mean" in data.read_bytes()
    assert run.parents[1].name == "seed42"
    # Online without an account: one sentence, and nothing begun.
    ran = command(*flags, "--wandb", "--seed", "7", WANDB_MODE="online", **clean)
    assert ran.returncode == 2
    assert ran.stderr.splitlines()[-1].startswith("error: --wandb: nobody is logged in")
    assert not list((tmp_path / "out").rglob("seed7"))
    missing = "import sys; sys.modules['wandb'] = None; import custom_training as c; sys.exit(c.main(sys.argv[1:]))"
    ran = subprocess.run(
        [sys.executable, "-c", missing, *map(str, flags), "--wandb", "--seed", "8"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 2
    assert "pip install 'interreplay[wandb]'" in ran.stderr


def test_an_address_joins_that_cluster_and_no_other(tmp_path):
    file = tmp_path / "c.json"
    file.write_text(json.dumps(TINY))
    # A cluster of its own, in a process of its own, so that its end ends nothing else.
    script = (
        "import subprocess, sys\n"
        "from ray.cluster_utils import Cluster\n"
        "cluster = Cluster(initialize_head=True, head_node_args={'num_cpus': 2})\n"
        "code = subprocess.run([sys.executable, *sys.argv[1:], '--address', cluster.address]).returncode\n"
        "import ray; ray.init(cluster.address, log_to_driver=False)\n"
        "from ray.util.state import list_jobs\n"
        "print('jobs', len({j['JobID'] for j in ray._private.state.jobs()}))\n"
        "ray.shutdown(); cluster.shutdown(); sys.exit(code)\n"
    )
    flags = ("custom_training.py", "--config", file, "--local_dir", tmp_path / "out")
    ran = subprocess.run(
        [sys.executable, "-c", script, *map(str, flags)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    assert "jobs 2" in ran.stdout  # the training's driver and this one that counts
    ran = command(*flags[1:], "--fresh", "--address", "127.0.0.1:1")
    assert ran.returncode == 2
    assert "no Ray cluster can be joined at --address 127.0.0.1:1" in ran.stderr


def test_a_terminal_shows_a_bar_for_each_run():
    console = Console(force_terminal=True, width=120, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    with ManyDisplay(["first", "second"], [100, 100], console) as display:
        display.report(1, {"env_steps": 50, "evaluation_return_mean": 12.5})
        display.failed(0, "it fell over")
    text = console.export_text()
    assert "first: failed: it fell over" in text
    assert "50/100" in text
    assert "return 12.5" in text
