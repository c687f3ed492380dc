"""One task of a SLURM array: `python -m interreplay.cluster.task array_1.json`."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from interreplay.cluster.jobs import Job
from interreplay.cluster.launch_folder import LaunchFolder, state_of
from interreplay.cluster.process import Asked, asked_to_stop, send, start

_LOOK_EVERY_S = 0.2


def main(argv: Sequence[str]) -> int:
    """Run this task's job; its exit code. A run whose time is over queues up again.

    SLURM itself queues it again when it is preempted, or when somebody says `scontrol requeue`;
    what its SIGTERM interrupts goes on from there.
    """
    array = Path(argv[0])
    launch = LaunchFolder(array.parent)
    job = launch.jobs(array.name)[int(os.environ["SLURM_ARRAY_TASK_ID"])]
    queue_id = f"{os.environ['SLURM_ARRAY_JOB_ID']}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    if int(os.environ.get("SLURM_RESTART_COUNT", 0)):
        # To begin anew a second time would throw away what the first time has done.
        todo = replace(job, argv=tuple(word for word in job.argv if word != "--fresh"))
    else:
        todo = job
    before = _newest(job)
    with asked_to_stop() as asked:
        try:
            process = start(todo, launch.log(job), {}, None)
        except OSError as error:
            launch.note(job, "failed", slurm=queue_id, error=str(error))
            return 1
        launch.begin(job, process.pid, slurm=queue_id)
        code = _wait(job, process, asked)
        if job.folder is not None and asked.number == signal.SIGUSR1 and code != 0:
            return _again(job, launch, code, before)
    launch.end(job, code)
    return code if code >= 0 else 128 - code


def _wait(job: Job, process: subprocess.Popen[bytes], asked: Asked) -> int:
    passed_on = 0
    while (code := process.poll()) is None:
        if asked.times > passed_on and asked.number is not None:
            passed_on = asked.times
            send(job, process, asked.number)
        time.sleep(_LOOK_EVERY_S)
    return code


def _again(job: Job, launch: LaunchFolder, code: int, before: str | None) -> int:
    """Queue up again for more time; not when all of the last time came to nothing."""
    if state_of(code) != "interrupted":
        launch.end(job, code)
        return code
    if _newest(job) == before:
        error = "its time was over before it got as far as a new checkpoint; raise --time"
        launch.note(job, "failed", code=code, error=error)
        return 1
    launch.note(job, "queued", code=code)
    ran = subprocess.run(
        ["scontrol", "requeue", os.environ["SLURM_JOB_ID"]], capture_output=True, text=True
    )
    if ran.returncode != 0:
        launch.note(job, "interrupted", error=f"not queued again: {ran.stderr.strip()}")
        return 1
    return 0


def _newest(job: Job) -> str | None:
    """The name of the run's latest checkpoint, which holds its env step."""
    if job.run is None:
        return None
    return max((path.name for path in job.run.checkpoints.glob("step_*[0-9]")), default=None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
