"""An id goes in, a checked Gymnasium environment comes out."""

from interreplay.environments.contract import check_first_step
from interreplay.environments.ids import in_gymnasium, resolve_id
from interreplay.environments.make import (
    build_env,
    check_spaces,
    make_env,
    make_vector_env,
)

__all__ = [
    "build_env",
    "check_first_step",
    "check_spaces",
    "in_gymnasium",
    "make_env",
    "make_vector_env",
    "resolve_id",
]
