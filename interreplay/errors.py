"""The one error that is the user's to mend."""


class UsageError(ValueError):
    """A setting, environment or folder that can't be used; one sentence that names the way out.

    Commands print it and leave with exit code 2.
    """
