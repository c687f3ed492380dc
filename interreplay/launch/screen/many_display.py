"""What many runs show: a bar each on a terminal, a line per evaluation in a log."""

from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from interreplay.launch.screen.display import plain_console


class ManyDisplay:
    """One line for each of several runs; `console` may be replaced for tests.

    Args:
        names: of the runs.
        totals: their budgets, in env steps.
    """

    def __init__(self, names: list[str], totals: list[int], console: Console | None = None) -> None:
        self._console = console or plain_console()
        self._names, self._totals = names, totals
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("steps"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._tasks: list[TaskID] = []

    def __enter__(self) -> "ManyDisplay":
        for name, total in zip(self._names, self._totals, strict=True):
            self._tasks.append(self._progress.add_task(name, total=total, note="waiting"))
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def say(self, line: str) -> None:
        """One line, above the bars."""
        self._console.print(line)
        self._console.file.flush()

    def report(self, index: int, report: dict[str, Any]) -> None:
        """How far run `index` is, and its last evaluation."""
        mean = report.get("evaluation_return_mean")
        changes: dict[str, Any] = {"completed": report["env_steps"]}
        if mean is not None:
            changes["note"] = f"return {mean:.1f}"
        self._progress.update(self._tasks[index], **changes)
        if self._progress.disable and mean is not None:
            speed = report.get("updates_per_s") or 0.0
            self.say(
                f"{self._names[index]}: step {report['env_steps']:,} of "
                f"{self._totals[index]:,}, return {mean:.2f}, {speed:.1f} updates/s"
            )

    def finished(self, index: int) -> None:
        """Run `index` has reached its budget."""
        if self._progress.disable:
            self.say(f"{self._names[index]}: finished")

    def failed(self, index: int, why: str) -> None:
        """Run `index` has ended early."""
        self._progress.update(self._tasks[index], note="failed")
        self.say(f"{self._names[index]}: failed: {why}")
