import io
import json
import multiprocessing
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

import tests.fake_envs  # noqa: F401
from interreplay.errors import UsageError
from interreplay.launch.kinds.replay import ReplayRun
from interreplay.launch.running import run as run_module
from interreplay.launch.running.run import train
from interreplay.launch.screen.display import Display
from interreplay.launch.settings.resolution import parse
from interreplay.results import RunFolder, learning_curve
from interreplay.results.run_folder import plain

TINY = (
    "--env InvertedPendulum-v5 --total_timesteps 90 --learning_starts 30 --timesteps_per_iteration 30 "
    "--hidden_sizes 8 --train_batch_size 8 --buffer_size 100 --num_cpus 1 "
)


@pytest.fixture(autouse=True)
def _ray(ray_session):
    pass


def tiny(folder, more=""):
    return parse(f"{TINY} --local_dir {folder} {more}".split())[0]


@pytest.fixture(scope="module")
def finished(tmp_path_factory, ray_session):
    local_dir = tmp_path_factory.mktemp("runs")
    flags = "--evaluation_num_episodes 3 --evaluation_interval 2 --checkpoint_freq 1 --buffer nmer --agent_name mine --seed 7"
    return train(ReplayRun(tiny(local_dir, flags)), quiet=True), local_dir


def test_the_folder_is_where_the_settings_say(finished):
    folder, local_dir = finished
    assert folder.path == local_dir / "mine" / "InvertedPendulum-v5" / "SAC-nmer" / "seed7"
    names = {p.name for p in folder.path.iterdir()}
    events = {n for n in names if n.startswith("events.out.tfevents")}
    assert len(events) == 1
    assert names - events == {
        "config.json",
        "run.json",
        "result.json",
        "learning_curve.png",
        "log.txt",
        "checkpoints",
    }


def test_every_line_has_the_promised_keys(finished):
    reports = finished[0].reports()
    assert [r["env_steps"] for r in reports] == [0, 30, 60, 90]
    assert [r["updates"] for r in reports] == [0, 0, 30, 60]
    for report in reports:
        assert {
            "env_steps", "updates", "wall_s", "evaluation_return_mean", "evaluation_return_std",
            "env_steps_per_s", "updates_per_s",
        } <= set(report)  # fmt: skip
    assert [r["wall_s"] for r in reports] == sorted(r["wall_s"] for r in reports)
    for report in reports[1:]:
        assert report["replay/size"] == report["env_steps"]
        assert report["env_steps_per_s"] > 0
    assert {
        "replay/bytes",
        "replay/sampled",
        "replay/mixed_fraction",
        "replay/mean_lam",
        "replay/mean_neighbor_distance",
    } <= set(reports[-1])
    assert reports[-1]["replay/sampled"] == 60 * 8


def test_evaluation_comes_at_step_0_every_interval_and_at_the_end(finished):
    reports = finished[0].reports()
    assert [r["evaluation_return_mean"] is not None for r in reports] == [True, False, True, True]
    for report in reports:
        if report["evaluation_return_mean"] is not None:
            returns = report["evaluation"]["env_runners"]["episode_returns"]
            assert len(returns) == 3
            assert report["evaluation_return_mean"] == pytest.approx(np.mean(returns))
            assert report["evaluation_return_std"] == pytest.approx(np.std(returns))


def test_run_json_says_with_what_it_ran(finished):
    run = json.loads(finished[0].run.read_text())
    assert run["state"] == "finished"
    assert run["versions"]["ray"] == "2.60.0"
    assert run["threads"] == 1
    assert run["started"] <= run["ended"]
    assert {"host", "command", "git_revision", "python"} <= set(run)


def test_config_json_runs_the_same_again(finished):
    folder, _ = finished
    again, _ = parse(["--config", str(folder.config)])
    assert again == parse(["--config", str(folder.config), "--seed", "7"])[0]
    assert (again.buffer, again.seed, again.total_timesteps) == ("nmer", 7, 90)
    assert folder.finished_with(again.to_dict())
    assert not folder.finished_with({**again.to_dict(), "gamma": 0.5})


def test_the_last_two_checkpoints_are_kept_and_whole(finished):
    folder, _ = finished
    names = sorted(p.name for p in folder.checkpoints.iterdir())
    assert names == ["step_0000000060", "step_0000000090"]
    from interreplay.algorithms.sac import SAC

    algorithm = SAC.from_checkpoint(str(folder.checkpoints / names[-1]))
    assert (algorithm.env_steps, len(algorithm.buffer)) == (90, 90)
    algorithm.stop()


def test_without_a_frequency_only_the_last_checkpoint_is_written(tmp_path):
    folder = train(ReplayRun(tiny(tmp_path, "--checkpoint_freq 0")), quiet=True)
    assert [p.name for p in folder.checkpoints.iterdir()] == ["step_0000000090"]


def test_tensorboard_events_hold_the_returns(finished):
    from tensorboardX.proto.event_pb2 import Event

    (path,) = finished[0].path.glob("events.out.tfevents*")
    data, tags = path.read_bytes(), {}
    while data:  # TFRecord: length, its checksum, the record, its checksum
        size = int.from_bytes(data[:8], "little")
        event = Event.FromString(data[12 : 12 + size])
        for value in event.summary.value:
            tags.setdefault(value.tag, []).append((event.step, value.simple_value))
        data = data[16 + size :]
    reports = finished[0].reports()
    expected = [
        (r["env_steps"], r["evaluation_return_mean"])
        for r in reports
        if r["evaluation_return_mean"] is not None
    ]
    assert [step for step, _ in tags["evaluation_return_mean"]] == [step for step, _ in expected]
    np.testing.assert_allclose(
        [v for _, v in tags["evaluation_return_mean"]], [v for _, v in expected], rtol=1e-6
    )


def test_a_finished_run_is_not_run_again_unless_fresh(finished, monkeypatch, capsys):
    folder, local_dir = finished
    before = folder.result.read_bytes()
    settings = parse(["--config", str(folder.config), "--local_dir", str(local_dir)])[0]
    monkeypatch.setattr(run_module, "_train_in", lambda *_: pytest.fail("it was run again"))
    assert train(ReplayRun(settings)).path == folder.path
    assert "finished already" in capsys.readouterr().out
    assert folder.result.read_bytes() == before


def test_sleep_time_waits_before_the_run_and_gives_the_folder_back_if_interrupted(
    tmp_path, monkeypatch
):
    waits = []

    def sleep(seconds):
        waits.append(seconds)
        raise KeyboardInterrupt

    monkeypatch.setattr(run_module.time, "sleep", sleep)
    with pytest.raises(KeyboardInterrupt):
        train(ReplayRun(tiny(tmp_path / "out", "--sleep_time 7.5")), quiet=True)
    assert waits == [7.5]
    assert list(tmp_path.iterdir()) == []


def test_an_old_id_finds_its_finished_run(tmp_path, capsys):
    flags = f"{TINY.replace('-v5', '-v2')} --local_dir {tmp_path}".split()
    first = train(ReplayRun(parse(flags)[0]), quiet=True)
    before = first.result.read_bytes()
    train(ReplayRun(parse(flags)[0]))
    assert "finished already" in capsys.readouterr().out
    assert first.result.read_bytes() == before
    assert sorted(p.name for p in first.path.parent.iterdir()) == ["seed42"]


@pytest.mark.parametrize("fresh", ["", "--fresh"])
def test_a_command_that_fails_leaves_the_earlier_run_where_it_was(tmp_path, fresh):
    folder = train(ReplayRun(tiny(tmp_path)), quiet=True)
    before = {p: p.read_bytes() for p in folder.path.rglob("*") if p.is_file()}
    with pytest.raises(UsageError, match="lower --buffer_size"):
        train(ReplayRun(tiny(tmp_path, f"--buffer_size 1e12 {fresh}")), quiet=True)
    assert {p: p.read_bytes() for p in folder.path.rglob("*") if p.is_file()} == before
    assert sorted(p.name for p in folder.path.parent.iterdir()) == ["seed42"]


def test_other_settings_move_the_earlier_run_aside(tmp_path):
    first = train(ReplayRun(tiny(tmp_path)), quiet=True)
    kept = first.result.read_bytes()
    second = train(ReplayRun(tiny(tmp_path, "--gamma 0.5")), quiet=True)
    assert second.path == first.path
    moved = second.path.with_name("seed42.1")
    assert (moved / "result.json").read_bytes() == kept
    assert json.loads(second.config.read_text())["gamma"] == 0.5


def test_fresh_deletes_the_earlier_run_and_only_a_run_of_ours(tmp_path):
    folder = train(ReplayRun(tiny(tmp_path)), quiet=True)
    (folder.path / "marker").touch()
    train(ReplayRun(tiny(tmp_path, "--fresh")), quiet=True)
    assert not (folder.path / "marker").exists()
    assert not folder.path.with_name("seed42.1").exists()
    folder.run.unlink()
    with pytest.raises(UsageError, match="--fresh won't delete"):
        train(ReplayRun(tiny(tmp_path, "--fresh")), quiet=True)
    assert folder.result.exists()


def _hold(path, held, done):
    folder = RunFolder(Path(path))
    folder.open(fresh=False)
    held.set()
    done.wait(30)


def test_two_processes_never_share_a_folder(tmp_path):
    settings = tiny(tmp_path)
    path = tmp_path / "interreplay" / "InvertedPendulum-v5" / "SAC-vanilla" / "seed42"
    context = multiprocessing.get_context("spawn")
    held, done = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(str(path), held, done))
    other.start()
    assert held.wait(60)
    with pytest.raises(UsageError, match="another process is running"):
        train(ReplayRun(settings), quiet=True)
    assert not path.exists()
    done.set()
    other.join()
    assert train(ReplayRun(settings), quiet=True).result.exists()


def test_a_run_that_fails_before_its_first_report_leaves_nothing(tmp_path):
    settings = parse(f"{TINY} --env tests.fake_envs:Nan-v0 --local_dir {tmp_path / 'new'}".split())[
        0
    ]
    with pytest.raises(UsageError, match="finite numbers"):
        train(ReplayRun(settings), quiet=True)
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_fails_later_keeps_its_reports_and_says_so(tmp_path, monkeypatch):
    def poison(self):
        with torch.no_grad():
            self.net.critics.weights[0][:] = float("nan")
        return {}

    from interreplay.algorithms.sac import SACLearner

    monkeypatch.setattr(SACLearner, "report", poison)
    settings = tiny(tmp_path, "--prioritized_replay")
    with pytest.raises(UsageError, match="TD error is not finite"):
        train(ReplayRun(settings), quiet=True)
    (path,) = tmp_path.rglob("run.json")
    folder = RunFolder(path.parent)
    run = json.loads(path.read_text())
    assert run["state"] == "failed"
    assert "TD error" in run["error"]
    assert folder.reports()[0]["env_steps"] == 0
    assert not list(folder.path.glob("*.tmp"))


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="can't be written .* --local_dir"):
        train(ReplayRun(tiny(tmp_path / "file" / "below")), quiet=True)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    with pytest.raises(UsageError, match="can't be written"):
        train(ReplayRun(tiny("/proc/nowhere")), quiet=True)


def test_a_buffer_larger_than_memory_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(UsageError, match="lower --buffer_size"):
        train(ReplayRun(tiny(tmp_path / "x", "--buffer_size 1e12")), quiet=True)
    assert not (tmp_path / "x").exists()


def test_the_figure_shows_the_numbers_of_the_run(finished):
    folder, _ = finished
    image = np.asarray(Image.open(folder.figure).convert("RGB")).astype(int)
    assert image.shape[0] > 400
    for colour in ((0, 0x72, 0xB2), (0xE6, 0x9F, 0x00)):  # both curves are drawn
        assert (np.abs(image - colour).sum(-1) < 30).sum() > 100


def test_a_figure_without_an_evaluation_is_an_error(tmp_path):
    folder = RunFolder(tmp_path)
    folder.append({"env_steps": 1, "evaluation_return_mean": None})
    with pytest.raises(ValueError, match="no evaluation yet"):
        learning_curve(folder)


def test_a_line_cut_off_by_a_crash_is_left_out(tmp_path):
    folder = RunFolder(tmp_path)
    folder.append({"env_steps": 1})
    with open(folder.result, "a") as file:
        file.write('{"env_steps": 2, "upd')
    assert folder.reports() == [{"env_steps": 1}]


def test_what_json_cannot_hold_is_made_plain():
    value = {
        "a": np.float32(1.5),
        "b": np.arange(2),
        3: (float("nan"), np.inf),
        "d": Path("x"),
        "e": True,
        "f": None,
    }
    assert plain(value) == {
        "a": 1.5,
        "b": [0, 1],
        "3": [None, None],
        "d": "x",
        "e": True,
        "f": None,
    }


def test_a_log_gets_lines_and_a_terminal_a_bar():
    report = {"env_steps": 1000, "updates": 500, "evaluation_return_mean": 12.5, "evaluation_return_std": 1.0, "updates_per_s": 99.0, "wall_s": 3.0}  # fmt: skip
    for terminal in (False, True):
        console = Console(force_terminal=terminal, width=140, record=True, file=io.StringIO())
        display = Display(2000, console)
        display.card({"env": "X-v0"})
        display.start()
        display.advance(500)
        display.report(report)
        display.advance(2000)
        display.stop()
        text = console.export_text()
        assert "12.50 +- 1.00" in text
        assert "X-v0" in text
        assert ("2000/2000" in text) == terminal
