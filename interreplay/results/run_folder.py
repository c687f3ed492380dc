"""The folder of one run: what was asked, with what it ran, and what came out."""

import contextlib
import fcntl
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Collection
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import IO, Any

import numpy as np

from interreplay.errors import UsageError

_PACKAGES = ("ray", "torch", "gymnasium", "mujoco", "numpy", "interreplay")


def plain(value: Any) -> Any:
    """`value` as JSON can hold it: numpy values unpacked, what is not finite as null."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    if value is None or isinstance(value, str | int | bool):
        return value
    return str(value)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    """Write all of it or nothing."""
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "w") as file:
        json.dump(plain(content), file, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def _git_revision() -> str | None:
    """The source's commit, marked when files differ from it; None outside a checkout."""
    root = Path(__file__).resolve().parents[2]
    try:
        run = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40"],
            cwd=root,
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return run.stdout.strip() or None if run.returncode == 0 else None


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _circumstances() -> dict[str, Any]:
    """When, where and with what this process runs."""
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": sys.argv,
        "host": platform.node(),
        "python": platform.python_version(),
        "versions": {package: _version(package) for package in _PACKAGES},
        "git_revision": _git_revision(),
    }


class RunFolder:
    """`<local_dir>/<agent_name>/<env>/<trainer>-<recipe>/seed<k>/`.

    Files: `config.json` (resolved settings; `--config` reads it), `run.json` (versions, revision,
    host, command, state), `result.json` (one JSON object a line, one line a report),
    `learning_curve.png`, `log.txt` (what was shown), TensorBoard events, `checkpoints/`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[str] | None = None
        self._made: list[Path] = []
        self.begun = False

    @classmethod
    def locate(
        cls, local_dir: str, agent_name: str, env: str, trainer: str, recipe: str, seed: int
    ) -> "RunFolder":
        """The folder of a run, which need not exist yet."""
        root = Path(local_dir).expanduser().absolute()
        safe_env = env.replace("/", "_").replace(":", "_")
        return cls(root / agent_name / safe_env / f"{trainer}-{recipe}" / f"seed{seed}")

    @property
    def config(self) -> Path:
        return self.path / "config.json"

    @property
    def run(self) -> Path:
        return self.path / "run.json"

    @property
    def result(self) -> Path:
        return self.path / "result.json"

    @property
    def figure(self) -> Path:
        return self.path / "learning_curve.png"

    @property
    def log(self) -> Path:
        return self.path / "log.txt"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def _read(self, path: Path) -> dict[str, Any]:
        try:
            content = json.loads(path.read_text())
        except (OSError, json.JSONDecodeError):
            return {}
        return content if isinstance(content, dict) else {}

    @property
    def state(self) -> str | None:
        """running, finished, failed or interrupted; None where no run has begun."""
        return self._read(self.run).get("state")

    @property
    def locked(self) -> bool:
        """Whether a process that lives holds this folder, as far as its file system has locks."""
        try:
            with open(self.path.with_name(f".{self.path.name}.lock"), "r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def finished_with(
        self,
        settings: dict[str, Any],
        *,
        ignored: Collection[str] = (),
        defaults: dict[str, Any] | None = None,
    ) -> bool:
        """Whether this folder holds the finished run of the same settings.

        `ignored` names settings that change nothing in the results, `defaults` says what those
        meant that an older run has not written down.
        """
        return self.state == "finished" and self._same(settings, ignored, defaults)

    def unfinished_with(
        self,
        settings: dict[str, Any],
        *,
        ignored: Collection[str] = (),
        defaults: dict[str, Any] | None = None,
    ) -> bool:
        """Whether a run of the same settings began here and did not end; see `finished_with`."""
        begun = self.state in ("running", "interrupted", "failed")
        return begun and self._same(settings, ignored, defaults)

    def _same(
        self, settings: dict[str, Any], ignored: Collection[str], defaults: dict[str, Any] | None
    ) -> bool:
        mine, theirs = (
            {k: v for k, v in {**plain(defaults or {}), **given}.items() if k not in ignored}
            for given in (plain(settings), self._read(self.config))
        )
        return mine == theirs

    def open(self, *, fresh: bool) -> None:
        """Make the folder this process's own; an earlier run in it stays until `begin`.

        Raises:
            UsageError: the folder can't be written, another process is running in it, or `fresh`
                would delete files that no run of this project made.
        """
        try:
            self._make(self.path.parent)
            self._acquire()
            probe = self.path.with_name(f".{self.path.name}.probe")
            probe.touch()
            probe.unlink()
            if fresh and self._occupied() and not self._read(self.run).get("interreplay"):
                raise UsageError(
                    f"--fresh won't delete {self.path}: no run.json of this project is in it; "
                    "move it away or choose another --agent_name"
                )
        except OSError as error:
            self.discard()
            raise UsageError(
                f"the results folder {self.path} can't be written ({error.strerror}); "
                "choose another --local_dir"
            ) from error
        except UsageError:
            self._release()
            raise

    def _occupied(self) -> bool:
        return self.path.exists() and any(self.path.iterdir())

    def _make(self, path: Path) -> None:
        missing = [p for p in (path, *path.parents) if not p.exists()]
        for folder in reversed(missing):
            folder.mkdir(exist_ok=True)
            self._made.append(folder)

    def _aside(self) -> Path:
        """Rename the earlier run's folder to `seed0.1`, `seed0.2`, ...: nothing is lost."""
        number = 1
        while (target := self.path.with_name(f"{self.path.name}.{number}")).exists():
            number += 1
        self.path.rename(target)
        return target

    def _acquire(self) -> None:
        """One process per run folder; the lock goes with the process, however it ends."""
        path = self.path.with_name(f".{self.path.name}.lock")
        while True:
            lock = open(path, "a+")  # noqa: SIM115  # held for the run's life
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.close()
                raise UsageError(
                    f"another process is running in {self.path}; wait for it, or choose another "
                    "--seed or --agent_name"
                ) from None
            except OSError:
                break  # a file system without locks: two runs seldom share a folder
            try:
                if os.fstat(lock.fileno()).st_ino == path.stat().st_ino:
                    break
            except FileNotFoundError:
                pass
            lock.close()  # its owner ended and removed the file between open and flock
        self._lock = lock

    def _release(self) -> None:
        if self._lock is not None:
            self.path.with_name(f".{self.path.name}.lock").unlink(missing_ok=True)
            self._lock.close()
            self._lock = None

    def discard(self) -> None:
        """Take back everything `open` made: for a run that ended before `begin`."""
        self._release()
        for folder in reversed(self._made):
            with contextlib.suppress(OSError):  # gone already, or another run's by now
                folder.rmdir()
        self._made = []

    def begin(
        self, settings: dict[str, Any], facts: dict[str, Any], *, fresh: bool = False
    ) -> Path | None:
        """Write `config.json` and `run.json`, when the run has shown that it works.

        An earlier run's folder is moved aside, or deleted where `fresh` is set.

        Returns:
            Where the earlier run was moved, None when there was none.
        """
        moved = None
        if self._occupied():
            if fresh:
                shutil.rmtree(self.path)
            else:
                moved = self._aside()
        self.path.mkdir(exist_ok=True)
        _write_json(self.config, settings)
        _write_json(
            self.run,
            {
                "interreplay": _version("interreplay") or "source",
                "state": "running",
                **_circumstances(),
                **facts,
            },
        )
        self.begun = True
        return moved

    def resume(self, lines: int, facts: dict[str, Any]) -> None:
        """Go on with the run that is here, whose `result.json` had so many lines at that time.

        Args:
            lines: those after them are taken out: they will come again.
            facts: what `run.json` notes of the new start; the first one's stay.
        """
        kept = self.result.read_bytes().splitlines(keepends=True)[:lines]
        temporary = self.result.with_name(self.result.name + ".tmp")
        with open(temporary, "wb") as file:
            file.writelines(kept)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self.result)
        content = self._read(self.run)
        for name in ("ended", "error"):
            content.pop(name, None)
        again = [*content.get("resumed", []), {**_circumstances(), **facts}]
        _write_json(self.run, {**content, "state": "running", "resumed": again})
        self.begun = True

    def lines(self) -> int:
        """Of `result.json`."""
        return self.result.read_bytes().count(b"\n") if self.result.exists() else 0

    def append(self, report: dict[str, Any]) -> None:
        """Add one line to `result.json`."""
        line = json.dumps(plain(report)) + "\n"
        try:
            with open(self.result, "a") as file:
                file.write(line)
        except OSError as error:
            raise UsageError(
                f"{self.result} can't be written ({error.strerror}); make room, and the same "
                "command goes on from the last checkpoint"
            ) from error

    def end(self, state: str, **facts: Any) -> None:
        """Note in `run.json` how the run ended: `finished`, `failed` or `interrupted`."""
        content = self._read(self.run)
        ended = datetime.now(UTC).isoformat(timespec="seconds")
        _write_json(self.run, {**content, "state": state, "ended": ended, **facts})
        self._release()

    def reports(self) -> list[dict[str, Any]]:
        """The lines of `result.json`; a last line cut off by a crash is left out."""
        lines = []
        for line in self.result.read_text().splitlines():
            try:
                lines.append(json.loads(line))
            except json.JSONDecodeError:
                break
        return lines

    def evaluations(self) -> list[dict[str, Any]]:
        """The lines of `result.json` that hold an evaluation; none where no run has reported."""
        if not self.result.exists():
            return []
        return [r for r in self.reports() if r.get("evaluation_return_mean") is not None]
