"""How work ends before it is done: by the user's mistake, or because it was asked to stop."""


class UsageError(ValueError):
    """A setting, environment or folder that can't be used; one sentence that names the way out.

    Commands print it and leave with exit code 2.
    """


class Interrupted(Exception):
    """Training was asked to stop and did, between two env steps, where a checkpoint can be made."""
