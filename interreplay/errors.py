"""How work ends before it is done: by a mistake, by request, or by an error and its last line."""

import traceback


class UsageError(ValueError):
    """A setting, environment or folder that can't be used; one sentence that names the way out.

    Commands print it and leave with exit code 2.
    """


class Interrupted(Exception):
    """Training was asked to stop and did, between two env steps, where a checkpoint can be made."""


def add_sentence(error: BaseException, sentence: str) -> None:
    """Say it in the last line of what Python prints of `error`, after what has been said there."""
    notes = getattr(error, "__notes__", [])
    if notes:
        notes[-1] += f"; {sentence}"
    else:
        error.add_note(sentence)


def keep_traceback(error: Exception) -> None:
    """Put the traceback before what `add_sentence` said, as it doesn't reach other processes."""
    notes = error.__dict__.pop("__notes__", [])
    printed = "".join(traceback.format_exception(error)).rstrip()
    error.__notes__ = [f"in an env runner process:\n{printed}", *notes]


def told(error: BaseException) -> str:
    """The error and its last line as one sentence."""
    return "; ".join([str(error), *getattr(error, "__notes__", [])[-1:]])
