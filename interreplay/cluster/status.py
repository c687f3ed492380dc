"""How far the jobs of a launch are, as tables for people."""

import json
import os
from collections import Counter
from collections.abc import Sequence
from typing import Any

from interreplay.cluster.jobs import Job
from interreplay.cluster.launch_folder import LaunchFolder
from interreplay.results import RunFolder

_HEADER = ("job", "state", "env steps", "updates", "return", "log")
# Reports are a few KB each; the last ones are enough to find an evaluation in.
_TAIL_BYTES = 256 * 1024


def last_figures(folder: RunFolder) -> dict[str, Any]:
    """A run's `env_steps`, `updates` and last `evaluation_return_mean`; empty before a report."""
    figures: dict[str, Any] = {}
    try:
        with open(folder.result, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            lines = file.read().splitlines()
    except OSError:
        return {}
    for line in reversed(lines):
        try:
            report = json.loads(line)
        except ValueError:  # cut off at either end
            continue
        for name in ("env_steps", "updates", "evaluation_return_mean"):
            if figures.get(name) is None:
                figures[name] = report.get(name)
        if figures["evaluation_return_mean"] is not None:
            break
    return figures


def table(jobs: Sequence[Job], launch: LaunchFolder) -> str:
    """A line a job, and a last one that counts."""
    queue = launch.queue(jobs)
    states = [launch.state(job, queue) for job in jobs]
    rows = [_HEADER]
    for job, state in zip(jobs, states, strict=True):
        seen = last_figures(job.run) if job.run else {}
        steps = "" if job.steps is None else f"{seen.get('env_steps') or 0:,} of {job.steps:,}"
        mean = seen.get("evaluation_return_mean")
        updates = seen.get("updates")
        rows.append(
            (
                job.name,
                state,
                steps,
                "" if updates is None else f"{updates:,}",
                "" if mean is None else f"{mean:.1f}",
                str(launch.log(job)) if launch.log(job).exists() else "",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER))]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    counts = ", ".join(f"{count} {state}" for state, count in sorted(Counter(states).items()))
    return "\n".join([*lines, f"{len(jobs)} jobs: {counts}"])


def unfinished(jobs: Sequence[Job], launch: LaunchFolder, again: str) -> tuple[str, int]:
    """Which jobs ended without finishing, why and how each is run again; and how many they are.

    Args:
        jobs: of the launch.
        launch: where their records are.
        again: the command that runs all that have not finished.
    """
    queue = launch.queue(jobs)
    lines: list[str] = []
    left = 0
    for job in jobs:
        state = launch.state(job, queue)
        left += state != "finished"
        if state not in ("failed", "interrupted", "lost"):
            continue
        lines.append(f"{state}: {job.name}: {_why(job, launch)}")
        lines.append(f"  log: {launch.log(job)}")
        lines.append(f"  again: {job.command}")
    if lines:
        lines.append(f"all that have not finished: {again}")
    return "\n".join(lines), left


def _why(job: Job, launch: LaunchFolder) -> str:
    record = launch.record(job)
    code, error = record.get("code"), record.get("error")
    if error is not None:
        return str(error)
    try:
        said = launch.log(job).read_bytes()[-2000:].decode(errors="replace").split("\n")
    except OSError:
        said = []
    last = next((line.strip() for line in reversed(said) if line.strip()), "it said nothing")
    return last[:200] if code is None else f"exit code {code}: {last[:200]}"
