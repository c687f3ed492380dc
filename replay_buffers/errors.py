"""Errors of the replay rooms. Each message is one sentence that names the way out."""


class ReplayError(ValueError):
    """A setting or a row that the replay buffer can't work with."""
