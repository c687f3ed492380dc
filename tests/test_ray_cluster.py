"""Runs on a Ray cluster of two nodes, one of which dies; and private Rays beside a stranger's."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from interreplay.errors import UsageError
from interreplay.launch.kinds.replay import ReplayRun
from interreplay.launch.running import private_ray as private_ray_room
from interreplay.launch.running.run import folder_of, train
from interreplay.launch.settings.resolution import plan
from tests.test_cluster import launcher, wait_for
from tests.test_off_policy import settled

ROOT = Path(__file__).parents[1]
# Long enough to be killed in the middle, with a checkpoint every 50 env steps.
SWEEP = {
    "env": "InvertedPendulum-v5",
    "total_timesteps": 1500,
    "timesteps_per_iteration": 50,
    "learning_starts": 50,
    "hidden_sizes": [8],
    "train_batch_size": 8,
    "buffer_size": 2000,
    "checkpoint_freq": 1,
    "evaluation_num_episodes": 1,
    "seeds": [0, 1],
}
# Clusters live in a process of their own, so that their end ends nothing else. It says where it
# listens, kills the second node when told to, and ends when its input does.
CLUSTER = """
    import sys
    from ray.cluster_utils import Cluster
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    second = cluster.add_node(num_cpus=1) if sys.argv[1] == "2" else None
    cluster.wait_for_nodes()
    print(cluster.address, flush=True)
    for line in sys.stdin:
        cluster.remove_node(second, allow_graceful=False)
        print("killed", flush=True)
    cluster.shutdown()
"""
COUNT = """
    import sys, ray
    ray.init(sys.argv[1], log_to_driver=False)
    print(len(ray._private.state.jobs()) - 1)
"""


@pytest.fixture
def cluster(request):
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(CLUSTER), str(request.param)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    process.address = process.stdout.readline().strip()
    yield process
    process.stdin.close()
    assert process.wait(120) == 0


def jobs_seen(address):
    """Drivers that have joined the cluster so far, besides the one that counts."""
    script = textwrap.dedent(COUNT)
    ran = subprocess.run(
        [sys.executable, "-c", script, address], capture_output=True, text=True, timeout=120
    )
    return int(ran.stdout.split()[-1])


def node_of(folder):
    """Which of Ray's nodes a run's process belongs to: they differ in their raylet."""
    (pid,) = (
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and _holds(entry, folder)
    )
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("PPid:")[1].split()[0])


def _holds(process, folder):
    lock = folder.path.with_name(f".{folder.path.name}.lock")
    try:
        return any(os.readlink(file) == str(lock) for file in (process / "fd").iterdir())
    except OSError:
        return False


# One of several private Rays: says what it uses, and stays until its input ends.
PRIVATE = """
    import json, sys, psutil, ray
    from interreplay.launch.running.private_ray import private_ray
    with private_ray(0):
        mine = [psutil.Process(), *psutil.Process().children(recursive=True)]
        ports = [c.laddr.port for p in mine for c in p.net_connections() if c.status == "LISTEN"]
        worker = ray._private.worker.global_worker
        said = {"ports": ports, "pids": [p.pid for p in mine], "folder": worker.node.get_temp_dir_path(),
                "address": ray.get_runtime_context().gcs_address}
        print(json.dumps(said), flush=True)
        sys.stdin.read()
"""


def test_eight_private_rays_share_no_port_folder_or_process():
    processes, said = [], []
    for _ in range(4):  # all eight at once would be a test of patience
        pair = [
            subprocess.Popen(
                [sys.executable, "-c", textwrap.dedent(PRIVATE)],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(2)
        ]
        said += [json.loads(process.stdout.readline()) for process in pair]
        processes += pair
    for name in ("ports", "pids"):
        assert all(len(one[name]) >= 3 for one in said)
        together = [number for one in said for number in one[name]]
        assert len(together) == len(set(together))
    folders = {one["folder"] for one in said}
    assert len(folders) == 8 and all(map(os.path.isdir, folders))
    assert len({one["address"] for one in said}) == 8
    for process in processes:
        process.stdin.close()
    assert [process.wait(120) for process in processes] == [0] * 8
    assert not any(map(os.path.exists, folders))


def test_a_ray_that_comes_up_too_late_is_started_again(monkeypatch):
    import ray

    folders, late = (
        [],
        Exception("The current node timed out during startup. This could happen ..."),
    )

    def init(_temp_dir, **_):
        folders.append(_temp_dir)
        if len(folders) < 3:
            raise late

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    monkeypatch.setattr(private_ray_room.time, "sleep", lambda _: None)
    with private_ray_room.private_ray(0):
        assert [os.path.isdir(folder) for folder in folders] == [False, False, True]
    assert len(set(folders)) == 3 and not os.path.exists(folders[-1])
    folders, late = [], Exception("no such luck")
    with pytest.raises(Exception, match="no such luck"), private_ray_room.private_ray(0):
        pass
    assert len(folders) == 1 and not os.path.exists(folders[0])
    late = Exception("timed out during startup")
    monkeypatch.setattr(ray, "init", lambda **_: (_ for _ in ()).throw(late))
    with pytest.raises(UsageError, match="too busy"), private_ray_room.private_ray(0):
        pass


@pytest.mark.parametrize("cluster", [2], indirect=True)
def test_a_node_dies_and_the_runs_finish_as_if_it_had_not(cluster, tmp_path, ray_session):
    (tmp_path / "sweep.json").write_text(json.dumps(SWEEP))
    words = ("--input_path", "sweep.json", "--address", cluster.address)
    place = tmp_path / "out"
    runs = [
        ReplayRun(settings)
        for settings in plan(
            ["--config", str(tmp_path / "sweep.json"), "--local_dir", str(place)]
        ).runs
    ]
    folders = [folder_of(run) for run in runs]
    # --fresh is for the first life: the second one must not throw it away.
    process = launcher(tmp_path, *words, "--", "--local_dir", place, "--fresh")
    wait_for(lambda: all(list(f.checkpoints.glob("step_*[0-9]")) for f in folders), process)
    assert node_of(folders[0]) != node_of(folders[1])
    cluster.stdin.write("kill\n")
    cluster.stdin.flush()
    assert cluster.stdout.readline() == "killed\n"
    out, errors = process.communicate(timeout=400)
    assert process.returncode == 0, out + errors
    assert "2 of 2 jobs have finished" in out
    resumed = [json.loads(folder.run.read_text()).get("resumed") for folder in folders]
    assert sum(map(bool, resumed)) == 1
    assert not list(place.glob(".ir-tune-*"))
    for run, folder in zip(runs, folders, strict=True):
        alone = plan(["--config", str(tmp_path / "sweep.json"), "--local_dir", str(tmp_path)]).runs
        (same,) = (s for s in alone if s.seed == run.settings.seed)
        undisturbed = train(ReplayRun(same), quiet=True)
        assert settled(folder.reports()) == settled(undisturbed.reports())


@pytest.mark.parametrize("cluster", [1], indirect=True)
def test_a_strangers_cluster_is_left_alone(cluster, tmp_path):
    # Ray's own way of joining without being asked.
    env = {**os.environ, "RAY_ADDRESS": cluster.address}
    flags = "--env Pendulum-v1 --total_timesteps 40 --learning_starts 20 --num_workers 1"
    ran = subprocess.run(
        [sys.executable, "custom_training.py", *flags.split(), "--local_dir", str(tmp_path)],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    assert jobs_seen(cluster.address) == 0
