"""One process group for each world size, made when a test first asks for it."""

from collections.abc import Callable, Iterator

import pytest

from tests.ddp.pool import Pool


@pytest.fixture(scope="session")
def pool() -> Iterator[Callable[[int], Pool]]:
    """Return the ranks of a world size; they live until the tests end."""
    pools: dict[int, Pool] = {}

    def of(world_size: int) -> Pool:
        if world_size not in pools:
            pools[world_size] = Pool(world_size)
        return pools[world_size]

    yield of
    for one in pools.values():
        one.close()
