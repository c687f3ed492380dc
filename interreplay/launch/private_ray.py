"""A Ray of one's own: no stranger's cluster is joined, nothing of it is left behind."""

import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

_OBJECT_STORE_BYTES = 128 * 2**20


def allotted_cpus() -> int:
    """Cores this process may use: SLURM's allotment or the CPU affinity, not the node's total."""
    slurm = os.environ.get("SLURM_CPUS_PER_TASK", "")
    return int(slurm) if slurm.isdigit() else len(os.sched_getaffinity(0))


@contextmanager
def private_ray(processes: int, *, verbose: bool = False) -> Iterator[None]:
    """Start Ray on this machine for the life of the block, with room for `processes` workers.

    The address is always "local": a bare `ray.init()` would join whatever cluster it finds. The
    session folder has a short path (a UNIX socket's may not exceed 107 bytes) and is removed at
    the end. A Ray that is already running in this process (a notebook's) is used and left alone.
    """
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray

    level = logging.INFO if verbose else logging.ERROR
    for name in ("ray", "ray.rllib", "ray.tune", "ray._private"):
        logging.getLogger(name).setLevel(level)
    if ray.is_initialized():
        yield
        return
    folder = tempfile.mkdtemp(prefix="ir-", dir="/tmp")
    try:
        ray.init(
            address="local",
            num_cpus=processes,
            include_dashboard=False,
            log_to_driver=verbose,
            logging_level=level,
            object_store_memory=_OBJECT_STORE_BYTES,
            _temp_dir=folder,
        )
        yield
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)
