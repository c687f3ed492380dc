"""The real commands, in processes of their own."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from interreplay.launch.settings.resolution import parse
from replay_buffers import CATALOG

ROOT = Path(__file__).parents[1]
QUICK = (
    "--total_timesteps 400 --learning_starts 200 --timesteps_per_iteration 200 --hidden_sizes 16 16"
)


def command(line, cwd=ROOT, **env):
    words = shlex.split(line)
    assert words[0] == "python3"
    process = subprocess.Popen(
        [sys.executable, *words[1:]],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **env},
    )
    out, err = process.communicate(timeout=900)
    # Ray's own folder is gone, however the command ended.
    assert list(Path("/tmp").glob(f"ir-{process.pid}-*")) == []
    return subprocess.CompletedProcess(line, process.returncode, out, err)


@pytest.mark.parametrize(
    ("line", "recipe"),
    [
        (
            "python3 custom_training.py --trainer SAC --env InvertedPendulum-v2 --custom_replay_buffer True --knn_baseline",
            "SAC-nmer",
        ),
        (
            "python3 custom_training.py --trainer SAC --env HalfCheetah-v2 --custom_replay_buffer False",
            "SAC-vanilla",
        ),
        (
            "python3 custom_training.py --trainer SAC --env HalfCheetah-v2 --custom_replay_buffer False --prioritized_replay",
            "SAC-per",
        ),
        (
            "python3 custom_training.py --trainer DDPG --env InvertedPendulum-v2 --custom_replay_buffer False --prioritized_replay",
            "DDPG-per",
        ),
        (
            "python3 custom_training.py --trainer SAC --env Walker2d-v2 --custom_replay_buffer True --prioritized_replay "
            "--gaussian_process --gpytorch --mc_hyper --mean_type zero --kernel rbf --use_ard --use_delta --normalize "
            "--global_hyperparams",
            "SAC-bier-per",
        ),
    ],
)
def test_the_commands_of_the_documents_run_as_written(line, recipe, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    ran = command(f"{line} {QUICK} --local_dir {tmp_path / 'out'}", HOME=str(home))
    assert ran.returncode == 0, ran.stderr
    assert not (home / "ray_results").exists()  # where RLlib leaves an empty folder per algorithm
    warned = [text for text in ran.stdout.splitlines() if "successor" in text]
    assert len(warned) == 1
    (result,) = tmp_path.rglob("result.json")
    assert result.parent.parent.name == recipe
    last = json.loads(result.read_text().splitlines()[-1])
    assert (last["env_steps"], last["updates"]) == (400, 200)
    assert (result.parent / "learning_curve.png").exists()
    assert str(result.parent / "learning_curve.png") in ran.stdout.replace("\n", "")
    assert ran.stderr == ""
    assert ("fitted the hyperparameters on" in ran.stdout) == ("bier" in recipe)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("--env HalfCheeta-v5", "did you mean HalfCheetah-v5"),
        ("--nonsense", "unknown flag --nonsense"),
        ("--knn_baseline --naive_mixup_baseline", "two different recipes"),
        ("--buffer nmer --kneighbors 0", "--kneighbors is 0"),
        ("--buffer_size -1", "--buffer_size is -1"),
        ("--env CartPole-v1", "Discrete actions"),
        ("--env tests.fake_envs:Unbounded-v0", "unbounded action box"),
        ("--env tests.fake_envs:Image-v0", "observations"),
        ("--env tests.fake_envs:DictObs-v0", "Dict observations"),
        ("--env tests.fake_envs:Nan-v0", "finite numbers"),
        ("--local_dir /proc/nowhere", "can't be written"),
    ],
)
def test_bad_input_is_one_sentence_exit_code_2_and_no_leftovers(flags, sentence, tmp_path):
    where = "" if "--local_dir" in flags else f"--local_dir {tmp_path / 'results'}"
    ran = command(
        f"python3 {ROOT / 'custom_training.py'} {flags} {where}", cwd=tmp_path, PYTHONPATH=str(ROOT)
    )
    assert ran.returncode == 2
    assert ran.stderr.startswith("error: ")
    assert len(ran.stderr.splitlines()) == 1
    assert sentence in ran.stderr
    assert list(tmp_path.iterdir()) == []


def test_print_config_prints_settings_that_config_reads(tmp_path):
    ran = command("python3 custom_training.py --env HalfCheetah-v2 --buffer nmer --print_config")
    assert ran.returncode == 0
    file = tmp_path / "c.json"
    file.write_text(ran.stdout)
    assert (
        parse(["--config", str(file)])[0]
        == parse(["--env", "HalfCheetah-v2", "--buffer", "nmer"])[0]
    )


def test_local_mode_runs_in_one_process_and_shows_tracebacks(tmp_path):
    ran = command(f"python3 custom_training.py --local_mode {QUICK} --local_dir {tmp_path}")
    assert ran.returncode == 0, ran.stderr
    bad = f"--env tests.fake_envs:Nan-v0 --local_dir {tmp_path / 'bad'}"
    ran = command(f"python3 custom_training.py {bad}")
    assert ran.returncode == 2
    assert "Traceback" not in ran.stderr
    ran = command(f"python3 custom_training.py --local_mode {bad}")
    assert ran.returncode == 1
    assert "Traceback" in ran.stderr
    assert "env_runner.py" in ran.stderr
    assert not (tmp_path / "bad").exists()


def test_num_cpus_sets_the_threads(tmp_path):
    ran = command(f"python3 custom_training.py --num_cpus 1 {QUICK} --local_dir {tmp_path}")
    assert "1 torch thread(s)" in ran.stdout
    (run,) = tmp_path.rglob("run.json")
    assert json.loads(run.read_text())["threads"] == 1


def test_smoketest_passes_here_and_fails_with_a_way_out():
    ran = command("python3 smoketest.py")
    assert ran.returncode == 0, ran.stdout
    lines = ran.stdout.splitlines()
    assert sum(line.startswith("ok") for line in lines) == len(lines) - 1
    assert all(f"recipe {name}" in ran.stdout for name in CATALOG)
    assert all(f"trainer {name}" in ran.stdout for name in ("TD3", "DDPG"))
    broken = "import smoketest; smoketest.REQUIRED = {'torch': '1.0'}; raise SystemExit(smoketest.main())"
    ran = subprocess.run([sys.executable, "-c", broken], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 1
    failed = [line for line in ran.stdout.splitlines() if line.startswith("FAIL")]
    assert len(failed) == 1
    assert "pip install -r env/requirements.txt" in failed[0]


@pytest.mark.parametrize("workers", [0, 1])
def test_an_environment_that_dies_is_named_with_its_step_and_the_folder(tmp_path, workers):
    ran = command(
        f"python3 custom_training.py --env tests.fake_envs:Dying-v0 {QUICK} --total_timesteps 60 "
        f"--timesteps_per_iteration 10 --num_workers {workers} --num_cpus 2 --local_dir {tmp_path}"
    )
    assert ran.returncode == 1
    lines = ran.stderr.rstrip().splitlines()
    (folder,) = (path.parent for path in tmp_path.rglob("result.json"))
    sentence = (
        "the environment tests.fake_envs:Dying-v0 raised this at env step 25 of the run; "
        f"what there is of the run is in {folder}"
    )
    assert lines[-1] == sentence
    assert "RuntimeError: the simulator died" in lines
    assert any("tests/fake_envs.py" in line for line in lines)  # where it happened
    steps = [json.loads(line)["env_steps"] for line in (folder / "result.json").open()]
    assert steps == [0, 10, 20]
    run = json.loads((folder / "run.json").read_text())
    assert (run["state"], run["error"]) == ("failed", f"the simulator died; {sentence}")
