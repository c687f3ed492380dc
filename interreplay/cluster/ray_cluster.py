"""Training runs on a Ray cluster that runs already."""

import dataclasses
from collections.abc import Sequence

from interreplay.cluster.jobs import Job
from interreplay.cluster.launch_folder import LaunchFolder


def run_on_ray(
    jobs: Sequence[Job], launch: LaunchFolder, address: str, workers: int | None
) -> None:
    """Hand `jobs` to Tune on the cluster at `address`, whose resources say how many run at once.

    The runs' folders must lie on storage that all its machines share.

    Raises:
        UsageError: no cluster answers, or the runs don't go together.
    """
    from interreplay.launch.kinds.replay import ReplayRun
    from interreplay.launch.running.sweep import run_many

    runs = []
    for job in jobs:
        assert job.settings is not None
        settings = dataclasses.replace(
            job.settings, address=address, num_cpus=job.settings.num_cpus or 1
        )
        runs.append(ReplayRun(settings))
    for job, outcome in zip(jobs, run_many(runs, workers), strict=True):
        # Tune's word for Ctrl-C is the run's own: its folder says how it ended.
        ended = outcome.folder.state if outcome.error is not None else "finished"
        state = (
            "interrupted" if ended == "interrupted" else "failed" if outcome.error else "finished"
        )
        launch.note(job, state, error=outcome.error, slurm=None)
