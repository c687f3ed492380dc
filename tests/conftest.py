import os
from collections.abc import Iterator

import pytest

os.environ["RAY_DEDUP_LOGS"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"


@pytest.fixture(scope="session")
def ray_session() -> Iterator[None]:
    """One private Ray for every test that builds an algorithm."""
    from interreplay.launch.running.private_ray import private_ray

    with private_ray(4):
        yield
