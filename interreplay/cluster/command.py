"""`cluster_run.py`: options -> jobs -> a back end -> what came of it."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from interreplay.cluster.command_line import Options, parse
from interreplay.cluster.jobs import ROOT, Job
from interreplay.cluster.launch_folder import LaunchFolder
from interreplay.cluster.local import (
    default_workers,
    run_local,
    share_out_gpus,
    threads_for,
)
from interreplay.cluster.reading import read_commands, read_runs
from interreplay.cluster.status import table, unfinished
from interreplay.errors import UsageError


def command(argv: Sequence[str]) -> int:
    """Do what a command line says; 1 where some job has not finished.

    Raises:
        UsageError: what can't be used, before anything is started or written.
    """
    options = parse(argv)
    if options.status and options.source is None:
        return _status_of_all(options.logs)
    jobs = _jobs(options)
    launch = LaunchFolder(options.logs)
    again = shlex.join(["python3", str(ROOT / "cluster_run.py"), *argv])
    if options.status:
        print(table(jobs, launch))
        return _say_unfinished(jobs, launch, again.replace(" --status", ""))
    todo = [job for job in jobs if job.fresh or not launch.has_finished(job)]
    if options.backend == "slurm":
        todo = _not_queued(todo, launch)
    workers = options.workers or default_workers(len(todo))
    gpus = share_out_gpus(options.gpus, workers) if options.backend == "local" else []
    for job in jobs:
        print(job.command if job in todo else f"# finished or under way: {job.command}")
    if options.dry_run:
        return 0
    if not todo:
        print(f"all {len(jobs)} jobs have finished or are under way; add --status to see them")
        return 0
    launch.make(jobs)
    if options.backend == "slurm":
        return _submit(todo, launch, options)
    launch.own()
    if options.backend == "ray":
        from interreplay.cluster.ray_cluster import run_on_ray

        assert options.address is not None
        run_on_ray(todo, launch, options.address, options.workers)
        return _summary(jobs, launch, again)
    print(
        f"{len(todo)} of {len(jobs)} jobs to run, {workers} at once with {threads_for(workers)} "
        f"core(s) each; logs: {launch.path}",
        flush=True,
    )
    number = run_local(todo, launch, workers, gpus, lambda line: print(line, flush=True))
    code = _summary(jobs, launch, again)
    return code if number is None else 128 + number


def _jobs(options: Options) -> list[Job]:
    if options.commands is not None:
        return read_commands(options.commands)
    assert options.input_path is not None
    return read_runs(options.input_path, options.extra, options.logs)


def _not_queued(jobs: list[Job], launch: LaunchFolder) -> list[Job]:
    """Less those that SLURM has already: a second one would be in the first one's way."""
    queue = launch.queue(jobs)
    return [job for job in jobs if launch.state(job, queue) not in ("queued", "running")]


def _submit(jobs: list[Job], launch: LaunchFolder, options: Options) -> int:
    from interreplay.cluster.slurm import submit

    for array, count in submit(jobs, launch, options):
        print(f"submitted: array {array} of {count} jobs; logs: {launch.path}")
    print("add --status to see how far they are; the same command submits what did not finish")
    return 0


def _summary(jobs: list[Job], launch: LaunchFolder, again: str) -> int:
    left = _say_unfinished(jobs, launch, again)
    states = [launch.state(job, None) for job in jobs]
    print(f"{states.count('finished')} of {len(jobs)} jobs have finished")
    return left


def _say_unfinished(jobs: list[Job], launch: LaunchFolder, again: str) -> int:
    text, left = unfinished(jobs, launch, again)
    if text:
        print(text)
    return 1 if left else 0


def _status_of_all(logs: Path) -> int:
    """Every launch below the folder, where no file says which one is meant."""
    folders = sorted(path.parent for path in (logs.glob("**/jobs.json") if logs.exists() else ()))
    if not folders:
        raise UsageError(
            f"no launch has been made in {logs}; give --input_path, --commands or --logs"
        )
    code = 0
    for folder in folders:
        launch = LaunchFolder(folder)
        jobs = launch.jobs()
        print(f"{folder}\n{table(jobs, launch)}")
        code |= _say_unfinished(jobs, launch, "the command that started them")
        sys.stdout.flush()
    return code
