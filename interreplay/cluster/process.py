"""Starting a job's process, and passing signals on to it."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import FrameType

from interreplay.cluster.jobs import Job


def start(
    job: Job, log: Path, changes: Mapping[str, str], cpus: int | None
) -> subprocess.Popen[bytes]:
    """Start a job with its output appended to `log`, in a session of its own.

    Ctrl-C in a terminal reaches everything in the session: a run would get it twice, and a second
    one ends it without a checkpoint.

    Args:
        job: what to run.
        log: what it says goes here, behind what earlier attempts said.
        changes: of the environment.
        cpus: cores for a training run that was not told how many; None leaves it to the run.
    """
    argv = list(job.argv)
    if job.folder is not None and cpus is not None and "--num_cpus" not in argv:
        argv += ["--num_cpus", str(cpus)]
    with open(log, "a") as file:
        file.write(
            f"--- {datetime.now():%Y-%m-%d %H:%M:%S} on {os.uname().nodename}: {job.command}\n"
        )
        file.flush()
        return subprocess.Popen(
            argv,
            cwd=job.cwd,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **changes},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def send(job: Job, process: subprocess.Popen[bytes], number: int) -> None:
    """Signal a training run, which sees to its own processes; of a command, all processes."""
    with contextlib.suppress(ProcessLookupError):
        if job.folder is None:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)


class Asked:
    """The last signal that came, and how many did."""

    def __init__(self) -> None:
        self.number: int | None = None
        self.times = 0

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        self.number = number
        self.times += 1


@contextmanager
def asked_to_stop() -> Iterator[Asked]:
    """Note the signals that end a process, while the block runs."""
    asked = Asked()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
    before = {number: signal.signal(number, asked._on_signal) for number in numbers}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
