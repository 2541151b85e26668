"""A temperature above 0 asks for a fresh sample; ``cache.sampled`` says what else may answer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from local_cache import local_cache
from support.gateway import Running, SimSettings, gateway
from support.graph import eventually

QUICK = SimSettings(itl_ms=0, tokens=6)
SLOW = SimSettings(itl_ms=20, tokens=20)
ASKED = "what is the capital of france"
NEAR = "the capital of france is what"
"""The embedder of these tests finds them alike; the gateway's memory does not."""
SAMPLE: dict[str, Any] = {"temperature": 0.7}


async def tier(running: Running, text: str = ASKED, **fields: Any) -> str:
    answer = await running.post(text, **fields)
    assert answer.status == 200
    return answer.headers["x-cache"]


async def until_stored(running: Running) -> None:
    async def stored() -> bool:
        return bool((await running.get("/admin/cache"))["entries"] == 1)

    assert await eventually(stored, within_s=5)


async def test_by_default_every_sample_is_an_engines(folder: Path) -> None:
    async with (
        local_cache(folder, race=False) as cache,
        gateway(QUICK, handles=cache.handles, **cache.args) as running,
    ):
        assert [await tier(running, **SAMPLE) for _ in range(3)] == ["bypass"] * 3
        assert running.requests() == [3]
        assert (await running.get("/admin/cache"))["entries"] == 0


async def test_samples_that_are_asked_for_at_once_are_not_one_answer(folder: Path) -> None:
    async with (
        local_cache(folder, race=False) as cache,
        gateway(SLOW, handles=cache.handles, **cache.args) as running,
    ):
        tiers = await asyncio.gather(*(tier(running, stream=True, **SAMPLE) for _ in range(3)))
        assert tiers == ["bypass"] * 3
        assert running.requests() == [3]


@pytest.mark.parametrize(
    "fields", [{}, {"temperature": None}, {"temperature": 0}, {"temperature": 0.7, "seed": 1}]
)
async def test_a_request_that_leaves_the_choice_or_wants_the_same_again_is_a_hit(
    folder: Path, fields: dict[str, Any]
) -> None:
    async with (
        local_cache(folder, race=False) as cache,
        gateway(QUICK, handles=cache.handles, **cache.args) as running,
    ):
        assert await tier(running, **fields) == "miss"
        assert await tier(running, **fields) == "exact"
        await until_stored(running)
        assert await tier(running, NEAR, **fields) == "semantic"


@pytest.mark.parametrize(("sampled", "near"), [("exact", "miss"), ("all", "semantic")])
async def test_the_setting_lets_stored_answers_stand_for_samples(
    folder: Path, sampled: str, near: str
) -> None:
    async with (
        local_cache(folder, race=False, sampled=sampled) as cache,
        gateway(QUICK, handles=cache.handles, **cache.args) as running,
    ):
        assert await tier(running, **SAMPLE) == "miss"
        assert await tier(running, **SAMPLE) == "exact"
        await until_stored(running)
        assert await tier(running, NEAR, **SAMPLE) == near
