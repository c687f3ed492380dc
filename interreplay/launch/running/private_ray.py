"""A Ray of one's own: no stranger's cluster is joined, nothing of it is left behind."""

import contextlib
import logging
import os
import random
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from interreplay.errors import UsageError

_PATIENCE_S = 10
_ATTEMPTS = 4
_PREFIX = "ir-"
_OBJECT_STORE_BYTES = 128 * 2**20


def allotted_cpus() -> int:
    """Cores this process may use: SLURM's allotment or the CPU affinity, not the node's total."""
    slurm = os.environ.get("SLURM_CPUS_PER_TASK", "")
    return int(slurm) if slurm.isdigit() else len(os.sched_getaffinity(0))


def set_log_level(verbose: bool) -> int:
    """Let Ray and RLlib log what they do, or their errors alone; returns the level."""
    level = logging.INFO if verbose else logging.ERROR
    for name in ("ray", "ray.rllib", "ray.tune", "ray._private"):
        logging.getLogger(name).setLevel(level)
    return level


@contextmanager
def private_ray(
    processes: int, *, gpus: int = 0, address: str | None = None, verbose: bool = False
) -> Iterator[None]:
    """Start Ray on this machine for the life of the block, with room for `processes` workers.

    Without an `address` a Ray is started: a bare `ray.init()` would join whatever cluster it finds.
    The session folder has a short path (a UNIX socket's may not exceed 107 bytes) and is removed at
    the end. A Ray that is already running in this process (a notebook's) is used and left alone.

    Raises:
        UsageError: no cluster answers at `address`, or a private one does not come up.
    """
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray

    level = set_log_level(verbose)
    if ray.is_initialized():
        yield
        return
    if address is not None:
        _join(address, verbose, level)
        try:
            yield
        finally:
            ray.shutdown()
        return
    _remove_left_behind()
    arguments = {
        "address": "local",
        "num_cpus": processes,
        "num_gpus": gpus,
        "include_dashboard": False,
        "log_to_driver": verbose,
        "logging_level": level,
        "object_store_memory": _OBJECT_STORE_BYTES,
    }
    folder = _start(arguments)
    try:
        yield
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


def _start(arguments: dict[str, Any]) -> str:
    """`ray.init`, again where the machine was too busy; the session's folder.

    Ray gives its processes half a minute to come up, which many runs that start at the same moment
    on a few cores can exceed. They then try again at moments of their own.

    Raises:
        UsageError: it never came up.
    """
    import ray

    for attempt in range(_ATTEMPTS):
        folder = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir="/tmp")
        try:
            ray.init(**arguments, _temp_dir=folder)
            return folder
        except BaseException as error:
            ray.shutdown()
            shutil.rmtree(folder, ignore_errors=True)
            if "timed out during startup" not in str(error):
                raise
        time.sleep(random.Random(os.getpid()).uniform(1, 10) * (attempt + 1))
    raise UsageError(
        f"Ray did not start within half a minute, {_ATTEMPTS} times: this machine is too busy; run "
        "fewer at once, or try later"
    )


def _remove_left_behind() -> None:
    """Session folders of processes that were killed: Ray's own processes end with their parent."""
    for folder in Path("/tmp").glob(f"{_PREFIX}*-*"):
        pid = folder.name.removeprefix(_PREFIX).partition("-")[0]
        with contextlib.suppress(OSError):  # another user's, or gone by now
            if pid.isdigit() and folder.stat().st_uid == os.getuid() and not _alive(int(pid)):
                shutil.rmtree(folder, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _knock(address: str) -> None:
    """Fail in seconds where nobody listens; Ray itself goes on trying for ten minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host, int(port)), timeout=_PATIENCE_S).close()


def _join(address: str, verbose: bool, level: int) -> None:
    import ray

    try:
        _knock(address)
        ray.init(address=address, log_to_driver=verbose, logging_level=level)
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UsageError(
            f"no Ray cluster can be joined at --address {address} ({reason}); `ray status` on "
            "one of its machines shows whether it runs"
        ) from error
