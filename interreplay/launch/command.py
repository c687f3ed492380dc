"""How every command of this project ends: an exit code, and one sentence for a mistake."""

import sys
from collections.abc import Callable

from interreplay.errors import UsageError


def answer(work: Callable[[], int], *, debugging: bool = False) -> int:
    """Do the work of a command; its exit code.

    Args:
        work: returns 0 for done, 1 where one of several runs failed.
        debugging: show a mistake's whole traceback.

    Returns:
        What `work` returned; 2 for what the user can mend, which is one sentence on stderr; 130 for
        Ctrl-C.
    """
    try:
        return work()
    except UsageError as error:
        if debugging:
            raise
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
