"""Signals that ask a run to stop: it writes a checkpoint and leaves, within a step or two."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

# SLURM sends SIGTERM before it preempts and what `--signal` says before the time is over.
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


class Stop:
    """Whether somebody has asked, and how the process then ends."""

    def __init__(self, also: Callable[[], bool] | None, saved: bool) -> None:
        self.signal: signal.Signals | None = None
        self._also = also or (lambda: False)
        self._saved = saved

    def __call__(self) -> bool:
        return self.signal is not None or self._also()

    @property
    def reason(self) -> str:
        return self.signal.name if self.signal else "the command"

    def leave(self) -> None:
        """End as the signal would have ended it: Ctrl-C, or exit code 128 + its number."""
        if self.signal is None or self.signal == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + self.signal)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        twice = self.signal == number == signal.SIGINT
        self.signal = signal.Signals(number)
        if twice or not self._saved:
            self.leave()


@contextmanager
def stop_on_signals(
    also: Callable[[], bool] | None = None, *, saved: bool = True
) -> Iterator[Stop]:
    """Note the signals instead of dying of them, while the block runs.

    Outside the main thread, where Python delivers no signals, only `also` can ask.

    Args:
        also: another way of asking.
        saved: there will be a checkpoint to go on from; otherwise a signal ends the run at once.
    """
    stop = Stop(also, saved)
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, stop._on_signal) for number in _SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
