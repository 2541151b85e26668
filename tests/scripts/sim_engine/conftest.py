"""The scripted engine that most tests here ask."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from support.sim import (
    Sim,
    running,
)


@pytest.fixture
async def sim() -> AsyncIterator[Sim]:
    async with running() as started:
        yield started
