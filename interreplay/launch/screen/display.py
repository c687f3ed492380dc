"""What a run shows: a card, a progress bar on a terminal, plain lines in a log."""

import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table


def plain_console() -> Console:
    """Of the terminal's width; a log has no width, and paths in it stay in one piece."""
    width = None if sys.stdout.isatty() else 200
    return Console(highlight=False, soft_wrap=True, width=width)


class Display:
    """Prints to stdout; `console` may be replaced for tests."""

    def __init__(self, total: int, console: Console | None = None) -> None:
        self._console = console or plain_console()
        self._total = total
        self._log: Console | None = None
        self._unlogged: list[Any] = []  # said before there is a file to say it in
        self._progress: Progress | None = None
        self._task: Any = None
        if self._console.is_terminal:
            self._progress = Progress(
                TextColumn("[bold]{task.description}"),
                BarColumn(bar_width=None),
                MofNCompleteColumn(),
                TextColumn("steps"),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                TextColumn("{task.fields[note]}"),
                console=self._console,
            )
            self._task = self._progress.add_task("training", total=total, note="")

    def card(self, rows: dict[str, str]) -> None:
        """What is about to run."""
        table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
        table.add_column(style="bold")
        table.add_column(overflow="fold")
        for name, value in rows.items():
            table.add_row(name, value)
        self._print(table)

    def say(self, line: str) -> None:
        """One line, above the bar when there is one."""
        self._print(line)

    def log_to(self, path: Path) -> None:
        """Keep what was shown so far, and from here on, in a file as well."""
        file = open(path, "a")  # noqa: SIM115  # closed by stop
        self._log = Console(file=file, width=200, highlight=False, soft_wrap=True)
        for content in self._unlogged:
            self._log.print(content)
        file.flush()
        self._unlogged = []

    def _print(self, content: Any) -> None:
        self._console.print(content)
        self._console.file.flush()  # a redirected screen is read while the run goes on
        if self._log is None:
            self._unlogged.append(content)
        else:
            self._log.print(content)
            self._log.file.flush()

    def start(self) -> None:
        if self._progress is not None:
            self._progress.start()

    def advance(self, env_steps: int) -> None:
        """Move the bar; a log gets lines from `report` alone."""
        if self._progress is not None:
            self._progress.update(self._task, completed=env_steps)

    def report(self, report: dict[str, Any]) -> None:
        """One line per evaluation: where the run is, how well it does, how fast it goes."""
        mean = report.get("evaluation_return_mean")
        if mean is None:
            return
        speed = report.get("updates_per_s") or 0.0
        line = (
            f"step {report['env_steps']:>9,} of {self._total:,}   "
            f"updates {report['updates']:>9,}   "
            f"return {mean:10.2f} +- {report['evaluation_return_std']:.2f}   "
            f"{speed:6.1f} updates/s   {report['wall_s']:7.0f} s"
        )
        if self._progress is not None:
            self._progress.update(
                self._task, completed=report["env_steps"], note=f"return {mean:.1f}"
            )
        self._print(line)

    def stop(self) -> None:
        if self._progress is not None:
            self._progress.stop()
        if self._log is not None:
            self._log.file.close()
            self._log = None
