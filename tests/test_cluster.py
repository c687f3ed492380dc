"""cluster_run.py: many jobs through the real command, and what it reads."""

import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from interreplay.cluster.command_line import parse as parse_options
from interreplay.cluster.jobs import TRAINING
from interreplay.cluster.launch_folder import LaunchFolder, state_of
from interreplay.cluster.reading import read_commands, read_runs
from interreplay.cluster.status import last_figures
from interreplay.errors import UsageError
from interreplay.launch.kinds.replay import ReplayRun
from interreplay.launch.running.run import train
from interreplay.launch.settings.resolution import parse, plan
from interreplay.results import RunFolder
from tests.test_off_policy import settled

ROOT = Path(__file__).parents[1]
TINY = (
    "--total_timesteps 60 --learning_starts 20 --timesteps_per_iteration 20 --hidden_sizes 8 "
    "--train_batch_size 8 --buffer_size 100"
)

LONG = {
    "total_timesteps": 1_000_000,
    "timesteps_per_iteration": 20,
    "learning_starts": 20,
    "hidden_sizes": [8],
    "train_batch_size": 8,
    "buffer_size": 100,
}


def launcher(place, *words, **env):
    """The real command, started in a folder of its own."""
    return subprocess.Popen(
        [sys.executable, str(ROOT / "cluster_run.py"), *map(str, words)],
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
    )


def launched(place, *words, **env):
    process = launcher(place, *words, **env)
    out, errors = process.communicate(timeout=500)
    return subprocess.CompletedProcess(words, process.returncode, out, errors)


def wait_for(condition, process=None, seconds=120):
    for _ in range(seconds * 20):
        if condition():
            return
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.05)
    raise AssertionError("it never came to that")


# -- stubs -----------------------------------------------------------------------------------------


def test_of_a_hundred_commands_four_crash_and_the_rest_finish(tmp_path):
    crashes = ["exit 3", "kill -KILL $$", "kill -SEGV $$", "echo no room >&2; exit 1"]
    unlucky = dict(zip(random.Random(7).sample(range(100), 4), crashes, strict=True))
    commands = [
        f"echo {n} >> began; {unlucky.get(n, 'true')}; echo {n} >> ended" for n in range(100)
    ]
    file = tmp_path / "stubs.txt"
    file.write_text("# a hundred\n\n" + "\n".join(commands) + "\n")
    ran = launched(tmp_path, "--commands", file, "--workers", 8)
    assert ran.returncode == 1 and ran.stderr == ""
    assert sorted(map(int, (tmp_path / "began").read_text().split())) == list(range(100))
    well = sorted(set(range(100)) - set(unlucky))
    assert sorted(map(int, (tmp_path / "ended").read_text().split())) == well
    # Everything is printed before anything runs.
    assert ran.stdout.splitlines()[:100] == commands
    assert "96 of 100 jobs have finished" in ran.stdout
    again = re.findall("^  again: (.*)$", ran.stdout, re.M)
    assert sorted(again) == sorted(commands[n] for n in unlucky)
    for sign in ("exit code 3", "exit code -9", "exit code -11", "exit code 1: no room"):
        assert ran.stdout.count(sign) >= 1, sign
    for log in re.findall("^  log: (.*)$", ran.stdout, re.M):
        assert Path(log).exists()
    # The same command runs the four only, and a mended one finishes.
    mended = file.read_text().replace("exit 3; ", "")
    file.write_text("echo new >> began\n" + mended)
    ran = launched(tmp_path, "--commands", file, "--workers", 8)
    assert ran.returncode == 1
    assert len((tmp_path / "began").read_text().split()) == 100 + 4 + 1
    assert "98 of 101 jobs have finished" in ran.stdout
    status = launched(tmp_path, "--status")
    assert status.returncode == 1
    assert "101 jobs: 3 failed, 98 finished" in status.stdout


def test_jobs_share_the_cores_and_the_gpus(tmp_path):
    file = tmp_path / "jobs.txt"
    file.write_text("".join(
        f'echo "$OMP_NUM_THREADS $CUDA_VISIBLE_DEVICES" > {n}; sleep 0.5\n' for n in range(4)
    ))  # fmt: skip
    env = {"SLURM_CPUS_PER_TASK": "8", "CUDA_VISIBLE_DEVICES": "3,5,6,9"}
    words = ("--commands", file, "--gpus", 2)
    assert launched(tmp_path, *words, "--workers", 2, **env).returncode == 0
    said = {(tmp_path / str(n)).read_text().strip() for n in range(4)}
    assert said == {"4 3,5", "4 6,9"}
    ran = launched(tmp_path, *words, "--workers", 3, "--logs", "other", **env)
    assert ran.returncode == 2
    assert "need 6, and there are 4 here" in ran.stderr


def test_two_launches_do_not_run_the_same_jobs(tmp_path):
    file = tmp_path / "one.txt"
    file.write_text("touch began; while [ ! -e go ]; do sleep 0.05; done\n")
    first = launcher(tmp_path, "--commands", file)
    wait_for((tmp_path / "began").exists, first)
    status = launched(tmp_path, "--commands", file, "--status")
    assert "1 jobs: 1 running" in status.stdout
    second = launched(tmp_path, "--commands", file)
    assert second.returncode == 2 and "another cluster_run.py is running" in second.stderr
    (tmp_path / "go").touch()
    assert first.wait(30) == 0
    first.communicate()


def test_a_job_that_ended_without_a_word_is_lost_and_runs_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.txt").write_text("true\n")
    (job,) = read_commands("c.txt")
    launch = LaunchFolder(tmp_path / "logging" / "c")
    launch.make([job])
    assert launch.state(job, None) == "waiting"
    ended = subprocess.Popen(["true"])
    ended.wait()
    launch.begin(job, ended.pid)
    assert launch.state(job, None) == "lost"
    launch.begin(job, os.getpid())
    assert launch.state(job, None) == "running"
    launch.note(job, "queued", slurm="7_3")
    assert launch.state(job, {"7_2", "7_3"}) == "queued"
    assert launch.state(job, {"7_2"}) == "lost"
    assert launched(tmp_path, "--commands", "c.txt").returncode == 0
    assert launch.state(job, None) == "finished"


def test_exit_codes_say_how_a_job_ended():
    # 128 + signal by a shell, - signal by subprocess.
    codes = {0: "finished", 1: "failed", 2: "failed", 137: "failed", -9: "failed"}
    asked = dict.fromkeys((130, 138, 143, -2, -10, -15), "interrupted")
    assert {code: state_of(code) for code in codes | asked} == codes | asked


# -- training runs ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def eight(tmp_path_factory):
    """Eight runs at the same time, one of which crashes."""
    place = tmp_path_factory.mktemp("eight")
    lines = [f"{seed} InvertedPendulum-v2 True mine 1 out SAC" for seed in range(7)]
    lines.insert(3, "7 tests.fake_envs:Nan-v0 True mine 1 out SAC")
    (place / "inputs.txt").write_text("\n".join([f"{TINY} --knn_baseline", *lines]))
    return place, launched(place, "--input_path", "inputs.txt", "--workers", 8)


def test_of_eight_runs_at_once_one_crashes_and_the_rest_finish(eight):
    place, ran = eight
    assert ran.returncode == 1, ran.stderr
    assert "7 of 8 jobs have finished" in ran.stdout
    (failed,) = re.findall("^failed: (.*)$", ran.stdout, re.M)
    assert "Nan-v0" in failed and "exit code 2: error:" in failed and "finite numbers" in failed
    (again,) = re.findall("^  again: (.*)$", ran.stdout, re.M)
    assert plan(shlex.split(again)[2:]).runs[0].seed == 7
    folders = [RunFolder(path.parent) for path in place.rglob("run.json")]
    assert len(folders) == 7
    for folder in folders:
        assert folder.state == "finished"
        assert json.loads(folder.run.read_text())["threads"] == 1
        assert [r["env_steps"] for r in folder.reports()] == [0, 20, 40, 60]


def test_a_run_among_eight_is_the_run_it_is_alone(eight, tmp_path, ray_session):
    place, _ = eight
    flags = f"--seed 4 --env InvertedPendulum-v5 --buffer nmer --agent_name mine {TINY}"
    alone = train(ReplayRun(parse([*flags.split(), "--local_dir", str(tmp_path)])[0]), quiet=True)
    among = RunFolder(place / "out" / "mine" / "InvertedPendulum-v5" / "SAC-nmer" / "seed4")
    assert settled(among.reports()) == settled(alone.reports())


def test_status_shows_how_far_each_run_is(eight):
    place, _ = eight
    ran = launched(place, "--input_path", "inputs.txt", "--status")
    assert ran.returncode == 1
    rows = {line.split()[0]: line for line in ran.stdout.splitlines() if line.startswith("mine_")}
    assert len(rows) == 8
    for seed in range(7):
        row = rows[f"mine_InvertedPendulum-v5_SAC-nmer_seed{seed}"]
        # 60 steps, an update a step after the 20 random ones.
        name, state, at, of, budget, updates, mean, log = row.split()
        assert (state, at, of, budget, updates) == ("finished", "60", "of", "60", "40")
        folder = place / "out/mine/InvertedPendulum-v5/SAC-nmer" / f"seed{seed}"
        last = json.loads((folder / "result.json").read_text().splitlines()[-1])
        assert mean == f"{last['evaluation_return_mean']:.1f}"
        assert Path(log).read_text().startswith("---")
        assert name in log
    assert "8 jobs: 1 failed, 7 finished" in ran.stdout
    assert "0 of 60" in rows["mine_tests.fake_envs_Nan-v0_SAC-nmer_seed7"]


def test_finished_runs_are_not_started_again(eight):
    place, _ = eight
    ran = launched(place, "--input_path", "inputs.txt", "--dry_run")
    commands = ran.stdout.splitlines()
    assert ran.returncode == 0 and len(commands) == 8
    assert [n for n, line in enumerate(commands) if not line.startswith("# finished")] == [3]
    # Another setting is another run.
    ran = launched(place, "--input_path", "inputs.txt", "--dry_run", "--", "--gamma", "0.9")
    assert not [line for line in ran.stdout.splitlines() if line.startswith("#")]


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGUSR1", 138)])
def test_a_signal_reaches_every_run_and_each_writes_a_checkpoint(name, code, tmp_path):
    content = {**LONG, "seeds": [0, 1, 2], "local_dir": "out"}
    (tmp_path / "long.json").write_text(json.dumps(content))
    running = launcher(tmp_path, "--input_path", "long.json", "--workers", 2)
    wait_for(lambda: len(list(tmp_path.rglob("result.json"))) == 2, running)
    time.sleep(0.5)
    running.send_signal(getattr(signal, name))
    out, errors = running.communicate(timeout=60)
    assert (running.returncode, errors) == (code, "")
    folders = [RunFolder(path.parent) for path in tmp_path.rglob("run.json")]
    assert [folder.state for folder in folders] == ["interrupted"] * 2
    for folder in folders:
        assert len(list(folder.checkpoints.glob("step_*"))) == 1
        assert last_figures(folder)["env_steps"] > 0
    assert "0 of 3 jobs have finished" in out
    status = launched(tmp_path, "--input_path", "long.json", "--status").stdout
    assert "3 jobs: 2 interrupted, 1 waiting" in status


# -- what is read ------------------------------------------------------------------------------------


def test_inputs_are_read_as_of_old(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inputs.txt").write_text(
        "--knn_baseline --total_timesteps 50\n\n# a comment\n"
        "3 Hopper-v2 True mine 20 here TD3\n   # another\n4 Hopper-v5 True mine 20 here TD3 # last\n"
    )
    first, second = read_runs("inputs.txt", ["--gamma", "0.9"], tmp_path)
    said = (
        "--seed 3 --env Hopper-v2 --custom_replay_buffer True --agent_name mine "
        "--round_robin_weights 20 --local_dir here --trainer TD3 "
        "--knn_baseline --total_timesteps 50 --gamma 0.9"
    )
    assert first.argv == (*TRAINING, *said.split())
    # -v2 ids run, and are filed under, their successor.
    assert first.folder == str(tmp_path / "here/mine/Hopper-v5/TD3-nmer/seed3")
    assert second.name == "mine_Hopper-v5_TD3-nmer_seed4"


@pytest.mark.parametrize(
    "content",
    [
        {"grid": {"env": ["Hopper-v5", "Walker2d-v5"], "buffer": ["vanilla", "nmer"]}},
        {"grid": {"trainer": ["SAC", "TD3"], "round_robin_weights": [1, 20]}, "hidden_sizes": [8]},
        {"grid": {"buffer": ["nmer", "bier", "ct"], "prioritized_replay": [False, True]}},
        {"grid": {"warmstart_global": [False, True], "normalize": [False, True]}, "buffer": "bier"},
        {"kneighbors": 5, "grid": {"buffer": ["vanilla", "nmer"]}, "fresh": True},
        {"preset": "paper", "grid": {"trainer": ["SAC", "DDPG"]}, "use_importance_sampling": True},
    ],
)
def test_the_runs_of_a_sweep_are_those_of_its_grid(content, tmp_path):
    file = tmp_path / "sweep.json"
    file.write_text(json.dumps({**content, "seeds": [0, 1], "total_timesteps": 77}))
    jobs = read_runs(str(file), ["--agent_name", "x"], tmp_path)
    wanted = plan(["--config", str(file), "--agent_name", "x"]).runs
    assert len(jobs) == len(wanted) >= 4
    for job, settings in zip(jobs, wanted, strict=True):
        for path, text in job.files.items():
            Path(path).write_text(text)
        (meant,) = plan([*job.argv[2:], "--num_cpus", "1"]).runs
        assert meant == settings
    assert len({job.name for job in jobs}) == len(jobs)


SWEEP = '{"seeds": [0, 1], "grid": {"buffer": ["nmer", "ct"]}}'


@pytest.mark.parametrize(
    ("content", "words", "sentence"),
    [
        ("--knn_baseline\n1 Hopper-v5 True a 1 out\n", "", "line 2 has 6 words in place of 7"),
        ("\n\n1 Hopper-v5 True a x out SAC\n", "", "line 3: argument --round_robin"),
        ("\n1 Hoper-v5 True a 1 out SAC\n", "", "line 2: unknown environment 'Hoper-v5'"),
        ("\n1 Hopper-v5 True a 1 out SACK\n", "", "line 2: argument --trainer"),
        ("1 Hopper-v5 True a 1 out SAC\n", "", "line 1 holds the flags of every run"),
        ("--knn_base\n1 Hopper-v5 True a 1 out SAC\n", "", "did you mean --knn_baseline"),
        ("\n1 Hopper-v5 True 'a 1 out SAC\n", "", "line 2: No closing quotation"),
        ("--knn_baseline\n# none\n", "", "asks for no run"),
        ("\n" + 2 * "1 Hopper-v2 True a 1 out SAC\n", "", "line 2 and in.txt line 3 are the same"),
        ("\n1 Hopper-v5 True a 1 out SAC\n", "--wokers 3", "did you mean --workers"),
        ("\n1 Hopper-v5 True a 1 out SAC\n", "--workers 0", "--workers is 0"),
        ("\n1 Hopper-v5 True a 1 out SAC\n", "--partition x", "add --backend slurm"),
        ("\n1 Hopper-v5 True a 1 out SAC\n", "--backend ray", "--address HOST:PORT go together"),
        ("\n1 Hopper-v5 True a 1 out SAC\n", "--commands x", "contradict each other"),
        ("\n1 Hopper-v5 True a 1 out SAC\n", "-- --dry_run", "cluster_run.py has --dry_run"),
        ("\n1 Hopper-v5 True a 1 out SAC\n", "--logs /proc/x", "can't be written"),
        (None, "", "in.txt can't be read"),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence_exit_code_2_and_no_leftovers(content, words, sentence, tmp_path):
    if content is not None:
        (tmp_path / "in.txt").write_text(content)
    before = sorted(tmp_path.rglob("*"))
    ran = launched(tmp_path, "--input_path", "in.txt", *words.split())
    assert ran.returncode == 2
    assert ran.stderr.startswith("error: ") and len(ran.stderr.splitlines()) == 1
    assert sentence in ran.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_a_name_belongs_to_one_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text(
        "\n" + "".join(f"1 Hopper-v5 True a 1 {out} SAC\n" for out in ("one", "two"))
    )
    one, two = read_runs("in.txt", [], tmp_path)
    assert one.name != two.name
    (tmp_path / "c.txt").write_text("true\ntrue\n")
    one, two = read_commands("c.txt")
    assert one.name != two.name
    with pytest.raises(UsageError, match="holds no command"):
        read_commands(os.devnull)


@pytest.mark.parametrize("words", ["", "--backend slurm --time 1:00:00", "--status"])
def test_a_login_node_needs_neither_torch_nor_ray(words, tmp_path):
    (tmp_path / "sweep.json").write_text(SWEEP)
    code = f"""
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        assert name.split(".")[0] not in ("torch", "ray"), name
sys.meta_path.insert(0, Refuse())
import cluster_run
sys.exit(cluster_run.main("--input_path sweep.json --dry_run {words}".split()))
"""
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert (ran.returncode, ran.stderr) == (1 if words == "--status" else 0, "")
    assert len(ran.stdout.splitlines()) == (6 if words == "--status" else 4)
    assert [p.name for p in tmp_path.iterdir()] == ["sweep.json"]


# -- documents and scripts ---------------------------------------------------------------------------


def test_every_cluster_command_in_the_documents_parses():
    found = 0
    for document in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for line in re.findall(r"python3 cluster_run\.py ([^`\n]*)", document.read_text()):
            parse_options(shlex.split(line.split("#")[0]))
            found += 1
    assert found >= 5


def test_results_are_collected_without_what_is_large(tmp_path):
    if shutil.which("rsync") is None:
        pytest.skip("NOT RUN: rsync is not installed here")
    run = tmp_path / "there" / "a" / "seed0"
    (run / "checkpoints" / "step_1").mkdir(parents=True)
    for name in (
        "result.json",
        "config.json",
        "log.txt",
        "events.out.tfevents.1",
        "checkpoints/step_1/x",
    ):
        (run / name).write_text(name)
    for _ in range(2):
        collect = [
            ROOT / "cluster_deployment" / "collect.sh",
            tmp_path / "there",
            tmp_path / "here",
        ]
        subprocess.run(collect, check=True)
        came = {str(p.relative_to(tmp_path / "here")) for p in (tmp_path / "here").rglob("*")}
        files = {f"a/seed0/{name}" for name in ("result.json", "config.json", "log.txt")}
        assert came == {"a", "a/seed0", *files}


def test_the_template_for_whole_nodes_passes_signals_on_and_queues_again(tmp_path):
    """Where SLURM's scontrol is a stub; `test_slurm.py` has the real one."""
    stub = tmp_path / "scontrol"
    stub.write_text('#!/bin/bash\necho "$@" > "$(dirname "$0")/requeued"\n')
    stub.chmod(0o755)
    content = {**LONG, "seeds": [0], "local_dir": str(tmp_path / "out")}
    (tmp_path / "long.json").write_text(json.dumps(content))
    template = ROOT / "cluster_deployment" / "concurrent_deployment" / "run.sh"
    running = subprocess.Popen(
        ["bash", template, tmp_path / "long.json", "--logs", tmp_path / "logs"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "PYTHON": sys.executable,
            "SLURM_JOB_ID": "77",
        },
    )
    wait_for(lambda: list(tmp_path.rglob("result.json")), running)
    running.send_signal(signal.SIGUSR1)
    running.communicate(timeout=60)
    assert (tmp_path / "requeued").read_text() == "requeue 77\n"
    (state,) = [RunFolder(path.parent).state for path in tmp_path.rglob("run.json")]
    assert state == "interrupted"
