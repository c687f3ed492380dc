"""The folder of one launch: its jobs, a log and a record for each."""

import fcntl
import json
import os
import platform
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from interreplay.cluster.jobs import Job
from interreplay.errors import UsageError

# 128 + the signal: what a run that was asked to stop, and wrote a checkpoint, ends with.
INTERRUPTED = {129, 130, 138, 143}


def state_of(code: int) -> str:
    """What an exit code says; a negative one is a signal's number, as `subprocess` has it."""
    code = code if code >= 0 else 128 - code
    return "finished" if code == 0 else "interrupted" if code in INTERRUPTED else "failed"


class LaunchFolder:
    """`<logs>/`: `jobs.json`, and `<job>.log` and `<job>.record.json` for each job.

    Every record has one writer at a time, whoever runs the job: no file needs a lock, so that the
    folder may lie on storage that many machines share.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[str] | None = None

    def log(self, job: Job) -> Path:
        return self.path / f"{job.name}.log"

    def make(self, jobs: Sequence[Job]) -> None:
        """Write down what is about to run.

        Raises:
            UsageError: the folder can't be written.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            for job in jobs:
                for file, content in job.files.items():
                    Path(file).write_text(content)
            self._write("jobs.json", [job.to_dict() for job in jobs])
        except OSError as error:
            raise UsageError(
                f"the folder {self.path} can't be written ({error.strerror}); "
                "choose another with --logs"
            ) from error

    def own(self) -> None:
        """Keep a second launch on this machine from running the same jobs; ends with the process.

        Raises:
            UsageError: somebody is at it.
        """
        self._lock = open(self.path / ".lock", "a")  # noqa: SIM115  # held for the process's life
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"another cluster_run.py is running the jobs of {self.path}; wait for it, or "
                "choose another folder with --logs"
            ) from None
        except OSError:
            pass  # a file system without locks: the runs' own folders are still one's own

    def write_array(self, jobs: Sequence[Job]) -> Path:
        """Jobs that are submitted together; the file never changes while they wait."""
        number = 1
        while (self.path / f"array_{number}.json").exists():
            number += 1
        return self._write(f"array_{number}.json", [job.to_dict() for job in jobs])

    def jobs(self, file: str = "jobs.json") -> list[Job]:
        """As they were written; none where there is no such file."""
        content = _read(self.path / file)
        return [Job.of_dict(job) for job in content] if isinstance(content, list) else []

    def record(self, job: Job) -> dict[str, Any]:
        """What is known of a job; nothing when the record is of another command."""
        content = _read(self.path / f"{job.name}.record.json")
        if not isinstance(content, dict) or content.get("argv") != list(job.argv):
            return {}
        return content

    def note(self, job: Job, state: str, **facts: Any) -> None:
        """Set a job's state: queued, running, finished, failed or interrupted; add `facts`."""
        content = {**self.record(job), **facts, "argv": list(job.argv), "state": state}
        content["changed"] = datetime.now(UTC).isoformat(timespec="seconds")
        self._write(f"{job.name}.record.json", content)

    def begin(self, job: Job, pid: int, **facts: Any) -> None:
        """Note that process `pid` of this machine runs it."""
        self.note(job, "running", host=platform.node(), pid=pid, code=None, error=None, **facts)

    def end(self, job: Job, code: int) -> str:
        """Note an exit code; the state it means."""
        state = state_of(code)
        self.note(job, state, code=code)
        return state

    def has_finished(self, job: Job) -> bool:
        """Whether it has done what was asked: by its results, or by its record.

        Results of before say nothing of a run that is asked for afresh.
        """
        if job.folder is not None and not job.fresh:
            return job.has_finished
        return self.record(job).get("state") == "finished"

    def queue(self, jobs: Sequence[Job]) -> set[str] | None:
        """What SLURM knows of this user's jobs, where any of `jobs` went there; see `state`."""
        return slurm_queue() if any(self.record(job).get("slurm") for job in jobs) else None

    def state(self, job: Job, queued: set[str] | None) -> str:
        """waiting, queued, running, finished, failed, interrupted, or lost: it ended silently.

        Args:
            job: of this launch.
            queued: what SLURM knows of this user's jobs, None where it can't be asked.
        """
        if self.has_finished(job):
            return "finished"
        record = self.record(job)
        state: str = record.get("state", "waiting")
        if state not in ("queued", "running"):
            return "waiting" if state == "finished" else state
        if (slurm := record.get("slurm")) is not None:
            return state if queued is None or slurm in queued else "lost"
        if record.get("host") == platform.node() and not _alive(record["pid"]):
            return "lost"
        return state

    def _write(self, name: str, content: Any) -> Path:
        """All of it or nothing."""
        path = self.path / name
        temporary = path.with_name(f".{name}.{platform.node()}.{os.getpid()}")
        temporary.write_text(json.dumps(content, indent=1) + "\n")
        os.replace(temporary, path)
        return path


def slurm_queue() -> set[str] | None:
    """`<array>_<task>` of this user's jobs that wait or run; None where there is no SLURM."""
    try:
        asked = subprocess.run(
            ["squeue", "--noheader", "--array", "--format=%i", f"--user={os.getuid()}"],
            capture_output=True,
            text=True,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return set(asked.stdout.split()) if asked.returncode == 0 else None


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, json.JSONDecodeError):
        return None


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
