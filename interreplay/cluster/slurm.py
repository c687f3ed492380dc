"""Arrays of SLURM: one task is one job with a private Ray of its own."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from interreplay.cluster.command_line import Options
from interreplay.cluster.jobs import ROOT, Job
from interreplay.cluster.launch_folder import LaunchFolder
from interreplay.errors import UsageError

# SLURM's MaxArraySize is 1001 unless a site changed it: indices 0 to 999 fit everywhere.
_LARGEST_ARRAY = 1000
# Before a task's time is over: enough to write a checkpoint of a full buffer.
_SIGNAL = "B:USR1@60"


def script(array: Path, count: int, options: Options) -> str:
    """What sbatch is given for the jobs in `array`, which can be submitted by hand as well.

    The batch shell becomes the task's process, so that signals for the one reach the other.
    """
    flags = {
        "job-name": options.logs.name,
        "array": f"0-{count - 1}" + (f"%{options.workers}" if options.workers else ""),
        "nodes": 1,
        "ntasks": 1,
        "cpus-per-task": options.cpus or 1,
        "partition": options.partition,
        "time": options.time,
        "mem": options.mem,
        "gres": f"gpu:{options.gpus}" if options.gpus else None,
        "signal": _SIGNAL,
        "open-mode": "append",
        "output": options.logs / "slurm_%A_%a.out",
    }
    directives = [f"--{name}={value}" for name, value in flags.items() if value is not None]
    lines = [f"#SBATCH {shlex.quote(flag)}" for flag in [*directives, "--requeue", *options.sbatch]]
    path = f"{ROOT}:$PYTHONPATH" if os.environ.get("PYTHONPATH") else str(ROOT)
    run = shlex.join([sys.executable, "-m", "interreplay.cluster.task", str(array)])
    return "\n".join(["#!/bin/bash", *lines, f'export PYTHONPATH="{path}"', f"exec {run}", ""])


def submit(
    jobs: Sequence[Job], launch: LaunchFolder, options: Options
) -> Iterator[tuple[str, int]]:
    """Submit `jobs` in as few arrays as SLURM takes; each one's id and size.

    Raises:
        UsageError: SLURM isn't here, or refuses; arrays that it has taken stay submitted.
    """
    for begin in range(0, len(jobs), _LARGEST_ARRAY):
        part = jobs[begin : begin + _LARGEST_ARRAY]
        array = launch.write_array(part)
        batch = array.with_suffix(".sh")
        batch.write_text(script(array, len(part), options))
        number = _sbatch(batch)
        for index, job in enumerate(part):
            launch.note(job, "queued", slurm=f"{number}_{index}", code=None, error=None)
        yield number, len(part)


def _sbatch(batch: Path) -> str:
    try:
        ran = subprocess.run(
            ["sbatch", "--parsable", str(batch)], capture_output=True, text=True, timeout=120
        )
    except FileNotFoundError:
        raise UsageError(
            "there is no sbatch here: run this on a login node of the cluster, or without "
            "--backend slurm"
        ) from None
    except subprocess.TimeoutExpired:
        raise UsageError("sbatch did not answer within two minutes; try again later") from None
    if ran.returncode != 0:
        said = " ".join(ran.stderr.split())
        raise UsageError(f"SLURM refused {batch}: {said}")
    return ran.stdout.strip().split(";")[0]
