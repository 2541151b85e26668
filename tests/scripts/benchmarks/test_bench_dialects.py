"""The benchmark of dialects waits for text in each of them."""

from __future__ import annotations

from pathlib import Path

import aiohttp
import pytest
from benchmarks.dialects import ASKS, take_turns, ttft_ms
from support.gateway import FAST, MODEL, gateway
from support.responses import responses_handle


async def test_each_dialect_has_its_time_to_first_token(tmp_path: Path) -> None:
    async with (
        responses_handle(tmp_path) as handle,
        gateway(FAST, handles={"responses": handle}, responses={}) as running,
    ):
        found = await take_turns(running.url, MODEL, 2, seed=1)
        async with aiohttp.ClientSession(running.url) as http:
            with pytest.raises(aiohttp.ClientResponseError):
                await ttft_ms(http, "chat", "nope", "hi")
    assert {dialect: len(times) for dialect, times in found.items()} == dict.fromkeys(ASKS, 2)
    assert all(time > 0 for times in found.values() for time in times)
