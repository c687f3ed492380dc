"""How much memory this process may really use: cgroup and SLURM limits, not the node's RAM."""

import os
from pathlib import Path

from replay_buffers.errors import ReplayError

_MIB = 2**20
_UNLIMITED = 2**60  # cgroup v1 writes "no limit" as a huge number


def _read_int(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # absent, or "max"
        return None


def _cgroup_folders(root: Path, membership: Path) -> list[Path]:
    """The folders of this process's memory cgroup and of all its ancestors."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return []
    folders = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers in ("", "memory") or "memory" in controllers.split(","):
            base = root if controllers == "" else root / "memory"
            parts = [part for part in path.split("/") if part not in ("", "..")]
            folders += [base.joinpath(*parts[:depth]) for depth in range(len(parts) + 1)]
    return folders


def _cgroup_free(root: Path, membership: Path) -> list[int]:
    free = []
    for folder in _cgroup_folders(root, membership):
        for limit_name, used_name in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            limit = _read_int(folder / limit_name)
            if limit is not None and limit < _UNLIMITED:
                used = (_read_int(folder / used_name) or 0) - _reclaimable(folder)
                free.append(limit - used)
    return free


def _reclaimable(folder: Path) -> int:
    """File cache that counts as used but gives way: `inactive_file` of memory.stat."""
    try:
        lines = (folder / "memory.stat").read_text().splitlines()
    except OSError:
        return 0
    found = [line.split()[1] for line in lines if line.startswith("inactive_file ")]
    return int(found[0]) if found else 0


def _slurm_limit() -> int | None:
    """The allocation on this node in bytes; SLURM states it in MiB, per node or per CPU."""
    per_node = os.environ.get("SLURM_MEM_PER_NODE", "")
    if per_node.isdigit() and int(per_node) > 0:
        return int(per_node) * _MIB
    per_cpu = os.environ.get("SLURM_MEM_PER_CPU", "")
    cpus = os.environ.get("SLURM_CPUS_ON_NODE", "")
    if per_cpu.isdigit() and cpus.isdigit():
        return int(per_cpu) * int(cpus) * _MIB
    return None


def available_bytes(
    cgroup_root: Path = Path("/sys/fs/cgroup"),
    membership: Path = Path("/proc/self/cgroup"),
    meminfo: Path = Path("/proc/meminfo"),
) -> int | None:
    """Bytes that can still be allocated under the tightest limit in force, None when unknown."""
    limits = _cgroup_free(cgroup_root, membership)
    if (slurm := _slurm_limit()) is not None:
        limits.append(slurm)
    try:
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                limits.append(int(line.split()[1]) * 1024)
    except OSError:
        pass
    return min(limits) if limits else None


def require(needed: int, what: str, way_out: str) -> None:
    """Raise `ReplayError` when `needed` bytes do not fit in what is available."""
    available = available_bytes()
    if available is not None and needed > available:
        raise ReplayError(
            f"{what} needs {needed / 1e9:.2f} GB but only {max(available, 0) / 1e9:.2f} GB are "
            f"available under the memory limit in force; {way_out}"
        )
