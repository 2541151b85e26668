"""What the gateway's tests share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from local_cache import LocalCache, local_cache

MEMORY = Path("/dev/shm")


@pytest.fixture
def folder() -> Iterator[Path]:
    """For a store that is needed only now: in memory where there is such a folder, for a store syncs."""
    with TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as name:
        yield Path(name)


@pytest.fixture(params=[False, True], ids=["look-up-first", "race"])
async def cache(folder: Path, request: pytest.FixtureRequest) -> AsyncIterator[LocalCache]:
    """In both orders of look-up and engine; files that need one of them have their own."""
    async with local_cache(folder, race=request.param) as cache:
        yield cache


@pytest.fixture
async def quiet_cache(folder: Path) -> AsyncIterator[LocalCache]:
    """The look-up comes first."""
    async with local_cache(folder, race=False) as cache:
        yield cache
