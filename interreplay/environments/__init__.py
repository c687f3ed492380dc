"""An id goes in, a checked Gymnasium environment comes out."""

from interreplay.environments.ids import resolve_id
from interreplay.environments.make import (
    check_first_observation,
    check_spaces,
    make_env,
    make_vector_env,
)

__all__ = ["check_first_observation", "check_spaces", "make_env", "make_vector_env", "resolve_id"]
