"""The benchmark of a request's record measures all of it, and compares parts with a client's time."""

from __future__ import annotations

import aiohttp
import pytest
from benchmarks.timeline import cost_us, differences
from support.gateway import FAST, MODEL, gateway


async def test_a_record_and_its_line_have_a_cost() -> None:
    record, line = await cost_us(50)
    assert 0 < line < 10_000
    assert 0 < record < 10_000


async def test_the_parts_of_each_answer_are_compared() -> None:
    async with gateway(FAST) as running:
        found = await differences(running.url, MODEL, 3)
        with pytest.raises(aiohttp.ClientResponseError):
            await differences(running.url, "nope", 1)
    assert len(found) == 3
    assert all(0 <= share < 1 for share in found)
