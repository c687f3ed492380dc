"""Jobs on this machine, some at a time."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from interreplay.cluster.jobs import Job
from interreplay.cluster.launch_folder import LaunchFolder
from interreplay.cluster.process import asked_to_stop, send, start
from interreplay.errors import UsageError
from interreplay.launch.running.private_ray import allotted_cpus

_DEFAULT_WORKERS = 4
_LOOK_EVERY_S = 0.05


@dataclass
class _Pool:
    launch: LaunchFolder
    workers: int
    threads: int
    gpus: list[list[str]]
    say: Callable[[str], None]
    running: dict[int, tuple[Job, subprocess.Popen[bytes]]] = field(default_factory=dict)
    ended: int = 0
    count: int = 0

    def fill(self, waiting: list[Job]) -> None:
        for slot in range(self.workers):
            if slot not in self.running and waiting:
                self._start(slot, waiting.pop(0))

    def _start(self, slot: int, job: Job) -> None:
        changes = {"OMP_NUM_THREADS": str(self.threads)}
        if self.gpus:
            changes["CUDA_VISIBLE_DEVICES"] = ",".join(self.gpus[slot])
        try:
            process = start(job, self.launch.log(job), changes, self.threads)
            self.running[slot] = (job, process)
            self.launch.begin(job, process.pid, slurm=None)
        except OSError as error:  # a full disk, say: the others may have more luck
            self._say_ended(job, f"failed: {error}")

    def collect(self) -> None:
        for slot, (job, process) in list(self.running.items()):
            code = process.poll()
            if code is None:
                continue
            del self.running[slot]
            try:
                state = self.launch.end(job, code)
            except OSError as error:
                state = f"ended with code {code}, which can't be written down ({error.strerror})"
            self._say_ended(job, state if state == "finished" else f"{state} (exit code {code})")

    def _say_ended(self, job: Job, how: str) -> None:
        self.ended += 1
        self.say(f"[{self.ended}/{self.count}] {job.name}: {how}")


def run_local(
    jobs: Sequence[Job],
    launch: LaunchFolder,
    workers: int,
    gpus: list[list[str]],
    say: Callable[[str], None] = print,
) -> int | None:
    """Run `jobs`, each in a process of its own; one that fails stops no other.

    A signal is passed on: training runs write a checkpoint and leave, and no further one starts.

    Args:
        jobs: none of which has finished.
        launch: where logs and records go.
        workers: jobs at a time.
        gpus: ids of each worker's devices; empty leaves CUDA_VISIBLE_DEVICES as it is.
        say: shows a line.

    Returns:
        The signal that ended it before its time, None when all have run.
    """
    pool = _Pool(launch, workers, threads_for(workers), gpus, say, count=len(jobs))
    waiting = list(jobs)
    passed_on = 0
    with asked_to_stop() as asked:
        while waiting or pool.running:
            if asked.number is None:
                pool.fill(waiting)
            elif asked.times > passed_on:
                passed_on = asked.times
                say(
                    f"{signal.Signals(asked.number).name}: {len(pool.running)} jobs are asked to "
                    "stop; training runs write a checkpoint first"
                )
                waiting.clear()
                for job, process in list(pool.running.values()):
                    # A hang-up is for terminals: to a run it means the same as SIGTERM.
                    number = signal.SIGTERM if asked.number == signal.SIGHUP else asked.number
                    send(job, process, number)
            pool.collect()
            time.sleep(_LOOK_EVERY_S)
    return asked.number


def threads_for(workers: int) -> int:
    """Cores of each of so many jobs at once."""
    return max(1, allotted_cpus() // workers)


def default_workers(jobs: int) -> int:
    """As of old four, where there are as many cores and jobs."""
    return max(1, min(_DEFAULT_WORKERS, allotted_cpus(), jobs))


def share_out_gpus(each: int | None, workers: int) -> list[list[str]]:
    """Device ids for every worker, `each` of them; none when GPUs were not asked for.

    Raises:
        UsageError: there are not as many here.
    """
    if not each:
        return []
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        devices = [str(n) for n, _ in enumerate(Path("/dev").glob("nvidia[0-9]*"))]
    else:
        devices = [device.strip() for device in visible.split(",") if device.strip()]
    if each * workers > len(devices):
        raise UsageError(
            f"{workers} runs at once with {each} GPU(s) each need {each * workers}, and there are "
            f"{len(devices)} here; lower --workers or --gpus (without --gpus all runs see them all)"
        )
    return [devices[each * n : each * (n + 1)] for n in range(workers)]
