"""What a person says of a semantic hit."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from local_cache import LocalCache, local_cache
from support.gateway import Running, SimSettings, gateway
from support.graph import eventually

QUICK = SimSettings(itl_ms=0, tokens=6)
ASKED = "what is the capital of france"
NEAR = "the capital of france is what"


@pytest.fixture
async def cache(folder: Path) -> AsyncIterator[LocalCache]:
    async with local_cache(folder, race=False) as cache:
        yield cache


def cached(cache: LocalCache, **args: Any) -> Any:
    return gateway(QUICK, handles=cache.handles, **(cache.args | args))


async def semantic_hit(running: Running) -> str:
    """The entry that answered ``NEAR``."""
    await running.post(ASKED)

    async def stored() -> bool:
        return bool((await running.get("/admin/cache"))["entries"] == 1)

    assert await eventually(stored, within_s=5)
    answer = await running.post(NEAR)
    assert answer.headers["x-cache"] == "semantic"
    return answer.headers["x-cache-entry"]


async def report(running: Running, body: Any) -> tuple[int, Any]:
    async with running.http.post("/admin/cache/feedback", json=body) as response:
        return response.status, await response.json()


async def test_an_entry_that_answered_wrongly_never_answers_again(cache: LocalCache) -> None:
    async with cached(cache) as running:
        entry = await semantic_hit(running)
        assert await report(running, {"entry": entry, "right": False}) == (
            200,
            {"entry": entry, "right": False, "dropped": 1},
        )
        assert (await running.post(NEAR)).headers["x-cache"] == "miss"
        stats = await running.get("/admin/cache")
        assert (stats["reported_wrong"], stats["reported_right"]) == (1, 0)


async def test_an_entry_that_answered_rightly_stays(cache: LocalCache) -> None:
    async with cached(cache) as running:
        entry = await semantic_hit(running)
        assert (await report(running, {"entry": entry, "right": True}))[0] == 200
        assert (await running.get("/admin/cache"))["reported_right"] == 1
        assert (await running.post(NEAR)).headers["x-cache"] == "semantic"


@pytest.mark.parametrize("word", [{"right": True}, {"right": False}, {"right": False, "text": "hi"}])
async def test_an_entry_that_is_not_there_is_a_404_and_counts_nothing(
    cache: LocalCache, word: dict[str, Any]
) -> None:
    async with cached(cache) as running:
        before = await running.get("/admin/cache")
        entry = str(uuid4())
        status, said = await report(running, {"entry": entry, **word})
        assert (status, said["error"]["code"]) == (404, "no_such_entry")
        assert entry in said["error"]["message"]
        assert await running.get("/admin/cache") == before


async def test_a_second_report_on_a_dropped_entry_is_a_404(cache: LocalCache) -> None:
    async with cached(cache) as running:
        word = {"entry": await semantic_hit(running), "right": False}
        assert [(await report(running, word))[0] for _ in range(2)] == [200, 404]
        assert (await running.get("/admin/cache"))["reported_wrong"] == 1


@pytest.mark.parametrize(
    "body",
    [{}, [], {"entry": "x", "right": True}, {"entry": str(uuid4())}, {"entry": str(uuid4()), "right": 1}, 7],
)
async def test_what_is_no_report_is_a_400_that_says_what_is_expected(cache: LocalCache, body: Any) -> None:
    async with cached(cache) as running:
        status, said = await report(running, body)
        assert status == 400
        assert "x-cache-entry" in said["error"]["message"]


async def test_without_a_cache_there_is_nothing_to_report_on() -> None:
    async with gateway(QUICK) as running:
        assert (await report(running, {"entry": str(uuid4()), "right": True}))[0] == 404


@pytest.mark.parametrize("body", [b'{"entry": "\xff\xfe"}', b'{"entry": ' + b"[" * 100_000])
async def test_what_cannot_even_be_read_is_a_400_too(cache: LocalCache, body: bytes) -> None:
    as_json = {"content-type": "application/json"}
    async with (
        cached(cache) as running,
        running.http.post("/admin/cache/feedback", data=body, headers=as_json) as response,
    ):
        assert response.status == 400
