"""The `rllib` command: RLlib's own algorithms in our run folders."""

import json
import os
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from interreplay.launch.rllib_command import main
from interreplay.launch.running.private_ray import allotted_cpus
from interreplay.launch.settings.rllib_flags import parse

ROOT = Path(__file__).parents[1]
SMALL = {
    "num_steps_sampled_before_learning_starts": 100,
    "train_batch_size_per_learner": 16,
    "model_config": {"fcnet_hiddens": [16, 16]},
}
KEYS = {
    "env_steps",
    "updates",
    "wall_s",
    "training_iteration",
    "evaluation_return_mean",
    "evaluation_return_std",
    "env_steps_per_s",
    "updates_per_s",
}


def train(tmp_path, line, config):
    words = [*line.split(), "--local-dir", str(tmp_path), "--num-cpus", "1"]
    return main(["train", *words, "--config", json.dumps(config)])


def reports(tmp_path):
    (result,) = tmp_path.rglob("result.json")
    return result.parent, [json.loads(line) for line in result.read_text().splitlines()]


def one_sentence(capsys):
    lines = [line for line in capsys.readouterr().err.splitlines() if line.strip()]
    assert len(lines) == 1, lines
    assert lines[0].startswith("error: ")
    return lines[0]


def check(folder, lines, steps, threads=1):
    for line in lines:
        assert line.keys() >= KEYS
    assert [line["env_steps"] for line in lines] == steps
    assert [line["training_iteration"] for line in lines] == list(range(len(steps)))
    assert lines[0]["updates"] == 0
    returns = [line["evaluation"]["env_runners"]["episode_returns"] for line in lines]
    for line, episodes in zip(lines, returns, strict=True):
        mean = sum(episodes) / len(episodes)
        assert line["evaluation_return_mean"] == pytest.approx(mean)
    run = json.loads((folder / "run.json").read_text())
    assert (run["state"], run["threads"]) == ("finished", threads)
    for name in ("config.json", "log.txt", "learning_curve.png"):
        assert (folder / name).stat().st_size > 0
    assert list(folder.glob("events.out.tfevents.*"))
    for line in lines[1:]:
        module = line["learners"]["default_policy"]
        rows, batch = (
            module[k] for k in ("num_module_steps_trained_lifetime", "module_train_batch_size_mean")
        )
        assert line["updates"] == rows / batch
    return returns


def test_the_command_of_the_readme_runs_as_written_and_is_skipped_when_finished(tmp_path):
    more = ["--stop_timesteps", "300", "--local_dir", str(tmp_path), "--config", json.dumps(SMALL)]
    line = "train --run SAC --env CartPole-v0"
    assert f"rllib {line}\n" in (ROOT / "README.md").read_text()
    command = [sys.executable, "-m", "interreplay.launch.rllib_command", *line.split(), *more]

    def run():
        env = {**os.environ, "PYTHONWARNINGS": "ignore:::glfw"}
        return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)

    first = run()
    assert first.returncode == 0, first.stderr
    assert first.stderr == ""
    folder, lines = reports(tmp_path)
    assert folder == tmp_path / "interreplay" / "CartPole-v0" / "RLlib-SAC" / "seed42"
    # The update at step 100 is the first, one a step follows.
    assert [(line["env_steps"], line["updates"]) for line in lines] == [(0, 0), (300, 201)]
    assert str(folder / "learning_curve.png") in first.stdout.replace("\n", "")
    before = (folder / "result.json").stat().st_mtime_ns
    again = run()
    assert again.returncode == 0, again.stderr
    assert "finished already" in again.stdout
    assert (folder / "result.json").stat().st_mtime_ns == before


def test_sac_counts_evaluates_and_saves(tmp_path, ray_session):
    from ray.rllib.algorithms.algorithm import Algorithm

    line = "--run SAC --env Pendulum-v1 --stop-timesteps 240 --evaluation-num-episodes 2"
    config = {**SMALL, "min_sample_timesteps_per_iteration": 120, "actor_lr": 0.0}
    assert train(tmp_path, line, config) == 0
    folder, lines = reports(tmp_path)
    returns = check(folder, lines, [0, 120, 240])
    assert all(len(episodes) == 2 for episodes in returns)
    assert lines[-1]["updates"] == 240 - 100 + 1
    (checkpoint,) = (folder / "checkpoints").glob("step_*")
    assert checkpoint.name == "step_0000000240"
    algorithm = Algorithm.from_checkpoint(str(checkpoint))
    try:
        assert type(algorithm).__module__ == "ray.rllib.algorithms.sac.sac"
        assert algorithm.config.actor_lr == 0.0
        module = algorithm.get_module()
        assert module.model_config["fcnet_hiddens"] == [16, 16]
    finally:
        algorithm.stop()


def test_an_evaluation_is_reported_once(tmp_path, ray_session):
    config = {**SMALL, "min_sample_timesteps_per_iteration": 60}
    line = "--run DQN --env CartPole-v1 --stop-timesteps 240 --evaluation-interval 2"
    assert train(tmp_path, line, config) == 0
    _, lines = reports(tmp_path)
    assert [line["env_steps"] for line in lines] == [0, 60, 120, 180, 240]
    evaluated = [line["evaluation_return_mean"] is not None for line in lines]
    assert evaluated == [True, False, True, False, True]
    assert ["evaluation" in line for line in lines] == evaluated


def test_ppo_reports_whole_batches_and_counts_minibatches(tmp_path, ray_session):
    line = "--run PPO --env Pendulum-v1 --stop-timesteps 300 --num-env-runners 0"
    config = {"train_batch_size_per_learner": 200, "minibatch_size": 50, "num_epochs": 3}
    config["model_config"] = {"fcnet_hiddens": [16]}
    assert train(tmp_path, line, config) == 0
    folder, lines = reports(tmp_path)
    check(folder, lines, [0, 400])  # 300 rounded up to whole batches
    # Two batches, three epochs each of four minibatches, and those that span two epochs.
    assert lines[-1]["updates"] >= 2 * 3 * 200 // 50


@pytest.mark.parametrize("env", ["dmc/cartpole_swingup", "tests.fake_envs:short"])
def test_environments_that_gymnasium_does_not_know_are_built_for_rllib(env, tmp_path, ray_session):
    config = {"train_batch_size_per_learner": 60, "minibatch_size": 30, "num_epochs": 1}
    config["model_config"] = {"fcnet_hiddens": [16]}
    assert (
        train(tmp_path, f"--run PPO --env {env} --stop-timesteps 60 --num-env-runners 0", config)
        == 0
    )
    folder, lines = reports(tmp_path)
    check(folder, lines, [0, 60])


def test_tqc_trains_on_pendulum(tmp_path, ray_session):
    assert train(tmp_path, "--run TQC --env Pendulum-v0 --stop-timesteps 120", SMALL) == 0
    folder, lines = reports(tmp_path)
    assert folder.parent.parent.name == "Pendulum-v1"
    check(folder, lines, [0, 120])
    assert lines[-1]["updates"] == 21


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("--run SAC", "--env is missing"),
        ("--run SAK --env CartPole-v1", "DQN, DreamerV3, IMPALA, PPO, SAC, TQC"),
        ("--run TD3 --env Pendulum-v1", "custom_training.py --trainer TD3"),
        ("--run BC --env Pendulum-v1", "recorded data"),
        ("--run DQN --env Pendulum-v1", "DQN takes Discrete actions"),
        ("--run TQC --env CartPole-v1", "TQC takes Box actions"),
        ("--run SAC --env CartPol-v1", "did you mean CartPole-v1"),
        ("--run SAC --env CartPole-v1 --stop-timestep 3", "did you mean --stop-timesteps"),
        ("--run SAC --env CartPole-v1 --stop-timesteps 0", "must be 1 or more"),
        ("--run SAC --env CartPole-v1 --config nowhere.json", "nowhere.json"),
        ("--run SAC --env CartPole-v1 --config {", "is not JSON"),
        ('--run SAC --env CartPole-v1 --config {"actr_lr":1}', "did you mean actor_lr"),
        ('--run SAC --env CartPole-v1 --config {"seed":1}', "--seed"),
        ('--run SAC --env CartPole-v1 --config {"train_batch_size":1}', "_per_learner"),
        ('--run SAC --env CartPole-v1 --config {"buffer_size":10}', "no setting 'buffer_size'"),
        ('--run SAC --env CartPole-v1 --config {"lr":0.1}', "actor_lr"),
        ('--run SAC --env CartPole-v1 --config {"model_config":{"hiddens":[1]}}', "fcnet_hiddens"),
        ("--run SAC --env FrozenLake-v1 --num-cpus 1", "can't build SAC on FrozenLake-v1"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(
    line, sentence, tmp_path, capsys, ray_session
):
    results = tmp_path / "results"
    assert main(["train", *line.split(), "--local-dir", str(results)]) == 2
    assert sentence in one_sentence(capsys)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("rollout ckpt --run SAC", "from_checkpoint"),
        ("evaluate ckpt", "from_checkpoint"),
        ("train file a.yaml", "rllib train --run"),
        ("fly", "rllib train --run SAC"),
    ],
)
def test_the_old_subcommands_name_what_to_use(line, sentence, capsys):
    assert main(line.split()) == 2
    assert sentence in one_sentence(capsys)


def test_alone_it_explains_itself(capsys):
    assert main([]) == 0
    assert "rllib train --run SAC --env CartPole-v0" in capsys.readouterr().out


def test_the_console_script_is_this_command():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, name = scripts["rllib"].split(":")
    assert getattr(import_module(module), name) is main


def test_dashes_and_underscores_are_the_same_and_config_may_be_a_file(tmp_path):
    file = tmp_path / "a_b.json"
    file.write_text('{"actor_lr": 0.1}')
    common = ["--run", "SAC", "--env", "CartPole-v1"]
    given = parse([*common, f"--config={file}", "--stop_timesteps=1e3", "--num_env_runners", "2"])
    same = parse(
        [
            *common,
            "--config",
            '{"actor_lr": 0.1}',
            "--stop-timesteps",
            "1000",
            "--num-env-runners",
            "2",
        ]
    )
    assert given == same
    assert (same.stop_timesteps, same.num_env_runners) == (1000, 2)
    assert same.config == {"actor_lr": 0.1}


@pytest.mark.parametrize(
    ("steps", "iteration"), [(300, 300), (1000, 1000), (1500, 750), (10_000, 1000)]
)
def test_whole_iterations_of_about_a_thousand_steps_make_up_the_budget(steps, iteration):
    settings = parse(["--run", "SAC", "--env", "CartPole-v1", "--stop-timesteps", str(steps)])
    assert settings.iteration == iteration


def test_print_config_shows_rllibs_defaults(capsys):
    assert main(["train", "--run", "SAC", "--env", "CartPole-v1", "--print-config"]) == 0
    shown = json.loads(capsys.readouterr().out)["resolved"]
    # RLlib's published defaults of SAC.
    assert shown["actor_lr"] == 3e-5
    assert shown["critic_lr"] == shown["alpha_lr"] == 3e-4
    assert shown["replay_buffer_config"]["type"] == "PrioritizedEpisodeReplayBuffer"
    assert shown["train_batch_size_per_learner"] == 256


def test_the_python_of_the_documents_runs(tmp_path, ray_session):
    text = (ROOT / "docs" / "stock-baselines.md").read_text()
    (code,) = re.findall(r"```python\n(# RLlib's own SAC.*?)```", text, re.S)
    code = code.replace('"results"', repr(str(tmp_path))).replace("20_000", "120")
    code = code.replace('{"actor_lr": 3e-4}', repr({**SMALL, "actor_lr": 3e-4}))
    code = code.replace('ray.init(address="local", include_dashboard=False)', "")  # it runs
    space: dict = {}
    exec(code, space)
    folder, lines = reports(tmp_path)
    check(folder, lines, [0, 120], allotted_cpus())
    assert space["algorithm"].config.actor_lr == 3e-4
    space["algorithm"].stop()
    assert space["returns"] == [line["evaluation_return_mean"] for line in lines]
    assert json.loads((folder / "config.json").read_text())["resolved"]["actor_lr"] == 3e-4
