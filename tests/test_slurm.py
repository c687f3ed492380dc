"""cluster_run.py on a real SLURM. `.ci/slurm.sh start` makes one; `.ci/run` requires it.

Where there is none, these tests are skipped, and pytest's summary says so.
"""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from interreplay.cluster.command_line import parse as parse_options
from interreplay.cluster.launch_folder import LaunchFolder, slurm_queue
from interreplay.cluster.slurm import script
from interreplay.launch.kinds.replay import ReplayRun
from interreplay.launch.running.run import folder_of, train
from interreplay.launch.settings.resolution import parse
from interreplay.results import RunFolder
from tests.test_cluster import TINY, launched, wait_for
from tests.test_off_policy import settled


def _runs():
    try:
        return subprocess.run(["sinfo"], capture_output=True, timeout=60).returncode == 0
    except OSError:
        return False


@pytest.fixture(scope="module")
def slurm():
    if _runs():
        return
    if os.environ.get("INTERREPLAY_SLURM") == "required":
        pytest.fail("SLURM is required here and does not answer; .ci/slurm.sh start starts one")
    pytest.skip("NOT RUN: no SLURM answers here (`.ci/slurm.sh start` starts one, as root)")


def directives(*words):
    options = parse_options(["--input_path", "x.json", "--backend", "slurm", *words])
    text = script(Path("/tmp/a/array_1.json"), 8, options)
    return re.findall("^#SBATCH (.*)$", text, re.M), text.splitlines()[-1]


def test_the_script_asks_for_what_was_asked_for():
    asked = "--partition gpu --time 24:00:00 --gpus 2 --cpus 6 --mem 12G --workers 3"
    found, last = directives(*asked.split(), "--sbatch", "--account=x --constraint='a b'")
    assert {
        "--partition=gpu",
        "--time=24:00:00",
        "--gres=gpu:2",
        "--cpus-per-task=6",
        "--mem=12G",
        "--array=0-7%3",
        "--account=x",
        "'--constraint=a b'",
        "--requeue",
        "--signal=B:USR1@60",
    } < set(found)
    # The batch shell gives way to the task, so that it is the task which the signal reaches.
    assert last.startswith("exec ") and last.endswith(
        "-m interreplay.cluster.task /tmp/a/array_1.json"
    )
    plain = " ".join(directives()[0])
    for name in ("partition", "time", "gres", "mem"):
        assert f"--{name}=" not in plain


def test_without_slurm_it_is_one_sentence(tmp_path):
    (tmp_path / "c.txt").write_text("true\n")
    ran = launched(tmp_path, "--commands", "c.txt", "--backend", "slurm", PATH="/nowhere")
    assert ran.returncode == 2
    assert ran.stderr.startswith("error: there is no sbatch here")
    assert len(ran.stderr.splitlines()) == 1


def states(place, name):
    launch = LaunchFolder(place / "logging" / name)
    jobs = launch.jobs()
    return [launch.state(job, launch.queue(jobs)) for job in jobs]


def test_an_array_runs_and_the_failed_ones_are_submitted_again(slurm, tmp_path):
    lines = [f"{seed} InvertedPendulum-v5 True mine 1 out SAC" for seed in range(2)]
    lines += ["7 tests.fake_envs:Nan-v0 True mine 1 out SAC"]
    (tmp_path / "inputs.txt").write_text("\n".join([f"{TINY} --knn_baseline", *lines]))
    words = ("--input_path", "inputs.txt", "--backend", "slurm")
    ran = launched(tmp_path, *words)
    assert ran.returncode == 0, ran.stderr
    (array,) = re.findall(r"submitted: array (\d+) of 3 jobs", ran.stdout)
    assert f"{array}_2" in slurm_queue()
    # What is queued or running is not submitted a second time.
    assert "submitted" not in launched(tmp_path, *words).stdout
    wait_for(lambda: {"queued", "running"}.isdisjoint(states(tmp_path, "inputs")), seconds=240)
    assert states(tmp_path, "inputs") == ["finished", "finished", "failed"]
    for path in tmp_path.rglob("run.json"):
        assert json.loads(path.read_text())["threads"] == 1
    status = launched(tmp_path, *words[:2], "--status")
    assert status.returncode == 1 and "finite numbers" in status.stdout
    assert re.search(r"again: .*custom_training.py --seed 7", status.stdout)
    again = launched(tmp_path, *words)
    (other,) = re.findall(r"submitted: array (\d+) of 1 jobs", again.stdout)
    wait_for(lambda: not {id for id in slurm_queue() if id.startswith(f"{other}_")}, seconds=120)
    assert states(tmp_path, "inputs") == ["finished", "finished", "failed"]


SLOW = {
    "env": "tests.fake_envs:Slow-v0",
    "total_timesteps": 6000,
    "learning_starts": 60,
    "timesteps_per_iteration": 250,
    "hidden_sizes": [8],
    "train_batch_size": 8,
    "buffer_size": 400,
    "local_dir": "out",
}


@pytest.mark.parametrize(
    ("how", "signal"), [("requeue", "SIGTERM"), ("time", "SIGUSR1")], ids=["requeued", "timed out"]
)
def test_a_run_that_slurm_interrupts_finishes_with_the_same_curve(
    how, signal, slurm, tmp_path, ray_session
):
    sweep = tmp_path / "slow.json"
    steps = 1500 if how == "requeue" else SLOW["total_timesteps"]
    sweep.write_text(json.dumps({**SLOW, "total_timesteps": steps, "seeds": [3]}))
    # Two minutes of which SLURM's signal takes the last one, and up to half a minute more.
    limit = ("--time", "2") if how == "time" else ()
    words = ("--input_path", "slow.json", "--backend", "slurm", *limit)
    ran = launched(tmp_path, *words, INTERREPLAY_SLOW_S="0.01")
    assert ran.returncode == 0, ran.stderr
    (array,) = re.findall(r"submitted: array (\d+)", ran.stdout)
    (alone, _) = parse(["--config", str(sweep), "--local_dir", str(tmp_path / "whole")])
    place = folder_of(ReplayRun(alone)).path.relative_to(tmp_path / "whole")
    folder = RunFolder(tmp_path / "out" / place)
    if how == "requeue":
        wait_for(lambda: folder.lines() >= 2, seconds=120)
        subprocess.run(["scontrol", "requeue", f"{array}_0"], check=True)
    wait_for(lambda: states(tmp_path, "slow")[0] in ("finished", "failed", "lost"), seconds=300)
    log = next((tmp_path / "logging" / "slow").glob("*.log")).read_text()
    assert folder.state == "finished", log
    assert f"stopped by {signal} at env step" in log
    assert len(json.loads(folder.run.read_text())["resumed"]) >= 1
    whole = train(ReplayRun(alone), quiet=True)  # last: meanwhile it would have slowed the other
    assert settled(folder.reports()) == settled(whole.reports())
    assert states(tmp_path, "slow") == ["finished"]
