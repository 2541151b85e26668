"""One embedder, two tenants: what one sends delays the other by a few passes, and is bounded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from local_cache import LocalCache, local_cache
from support.gateway import Answered, Running, SimSettings, gateway, meanwhile
from support.graph import eventually
from support.held_encoder import HeldEncoder, held_embedder

from serve_app.errors import SettingsError
from serve_app.request.record import RequestRecord
from serve_app.settings import parse_args

QUICK = SimSettings(itl_ms=0, tokens=4)
MOST = 4
BULK_CALLS, BULK_TEXTS = 40, 10


@asynccontextmanager
async def two_tenants(
    folder: Path, encoder: HeldEncoder, **settings: Any
) -> AsyncIterator[tuple[Running, LocalCache]]:
    async with (
        local_cache(folder, held_embedder(encoder, MOST), race=False, lookup_budget_ms=50_000.0) as cache,
        gateway(QUICK, handles=cache.handles, tenants=["a", "b"], **cache.args, **settings) as running,
    ):
        yield running, cache


async def embed(running: Running, tenant: str, texts: list[str], model: str = "words") -> Answered:
    return await running.send(
        {"model": model, "input": texts}, "/v1/embeddings", headers=running.headers(tenant)
    )


async def bulk(running: Running) -> list[Answered]:
    """What fills the embedder for a hundred passes."""
    calls = [
        embed(running, "a", [f"bulk {call} {number}" for number in range(BULK_TEXTS)])
        for call in range(BULK_CALLS)
    ]
    return await asyncio.gather(*calls)


async def until_begun(cache: LocalCache, calls: int) -> None:
    """So many calls have reached the embedder."""

    async def so() -> bool:
        return cache.embedder.begun["embed"] >= calls

    assert await eventually(so, within_s=30), cache.embedder.begun


async def until_waiting(cache: LocalCache, texts: int) -> None:
    """So many texts wait at the embedder for a pass."""

    async def so() -> bool:
        return cache.embedder.target.waiting == texts

    assert await eventually(so, within_s=30), cache.embedder.target.waiting


async def until_passes(encoder: HeldEncoder, count: int) -> None:
    """So many passes have begun: a pass begins on the embedder's thread, after its texts stopped to wait."""

    async def so() -> bool:
        return len(encoder.passes) == count

    assert await eventually(so, within_s=30), len(encoder.passes)


async def beside_bulk(folder: Path, send: Callable[[Running], Awaitable[Answered]], seen: str) -> Answered:
    """What tenant b sends while a hundred passes of tenant a's texts wait: it is answered after two, and the
    first of them holds a text with ``seen``."""
    encoder = HeldEncoder()
    async with two_tenants(folder, encoder) as (running, cache):
        warm = len(encoder.passes)
        with encoder.held():
            async with meanwhile(bulk(running)) as noise:
                await until_waiting(cache, waiting := BULK_CALLS * BULK_TEXTS - MOST)
                await until_passes(encoder, before := warm + 1)
                async with meanwhile(send(running)) as one:
                    await until_waiting(cache, waiting + 1)
                    encoder.let_go(2)
                    async with asyncio.timeout(30):
                        answer = await one
                assert any(seen in text for text in encoder.passes[before])
                encoder.let_go(BULK_CALLS * BULK_TEXTS)
                assert {each.status for each in await noise} == {200}
    return answer


async def test_a_tenants_text_waits_two_passes_beside_anothers_bulk(folder: Path) -> None:
    answer = await beside_bulk(folder, lambda running: embed(running, "b", ["one question"]), "one question")
    assert answer.status == 200


async def test_a_tenants_look_up_waits_two_passes_beside_anothers_bulk(folder: Path) -> None:
    answer = await beside_bulk(
        folder, lambda running: running.post("one question", running.headers("b")), "one question"
    )
    assert (answer.status, answer.headers["x-cache"]) == (200, "miss")


LIMITS = {"limits": {"max_embedding_inputs": 4, "max_embedding_texts_per_tenant": 6}}


async def test_a_tenant_has_only_so_many_texts_at_the_embedder(folder: Path) -> None:
    encoder = HeldEncoder()
    async with two_tenants(folder, encoder, **LIMITS) as (running, cache):
        calls = cache.embedder.begun["embed"]
        with encoder.held():
            async with (
                meanwhile(embed(running, "a", ["1", "2", "3", "4"])) as first,
                meanwhile(embed(running, "a", ["5", "6"])) as second,
            ):
                await until_begun(cache, calls + 2)
                refused = await embed(running, "a", ["7"])
                assert (refused.status, refused.error["code"]) == (429, "over_capacity")
                assert "limits.max_embedding_texts_per_tenant" in refused.error["message"]
                assert int(refused.headers["retry-after"]) == 1
                assert cache.embedder.begun["embed"] == calls + 2
                async with meanwhile(embed(running, "b", ["8", "9"])) as other:
                    await until_begun(cache, calls + 3)
                    encoder.let_go(9)
                    answers = await asyncio.gather(first, second, other)
        assert {answer.status for answer in answers} == {200}
        assert (await embed(running, "a", ["10", "11", "12", "13"])).status == 200


async def test_texts_of_a_client_that_left_count_until_they_are_embedded(folder: Path) -> None:
    encoder = HeldEncoder()
    records: list[RequestRecord] = []
    async with two_tenants(folder, encoder, sinks=[records.append], **LIMITS) as (running, cache):
        calls = cache.embedder.begun["embed"]
        with encoder.held():
            async with meanwhile(embed(running, "a", ["1", "2", "3", "4"])):
                await until_begun(cache, calls + 1)

            async def left() -> bool:
                return any(record.client_gone for record in records)

            assert await eventually(left, within_s=30)
            assert (await embed(running, "a", ["5", "6", "7"])).status == 429
        assert await eventually(lambda: accepted(running), within_s=30)


async def accepted(running: Running) -> bool:
    return (await embed(running, "a", ["5", "6", "7"])).status == 200


@pytest.mark.parametrize("failing", [True, False])
async def test_places_at_the_embedder_are_free_again(folder: Path, failing: bool) -> None:
    async with two_tenants(folder, HeldEncoder(), **LIMITS) as (running, cache):
        if failing:
            with cache.embedder.failing("embed"):
                for _ in range(3):
                    assert (await embed(running, "a", ["1", "2", "3", "4"])).status >= 500
        for _ in range(3):
            assert (await embed(running, "a", ["1", "2", "3", "4"])).status == 200


def test_a_bound_below_the_largest_request_is_refused_at_the_start() -> None:
    limits = {"max_embedding_inputs": 8, "max_embedding_texts_per_tenant": 7}
    upstream = {"name": "e", "url": "http://127.0.0.1:1/v1"}
    with pytest.raises(SettingsError, match="max_embedding_texts_per_tenant is 7; expected at least"):
        parse_args({"models": [{"id": "m", "upstreams": [upstream]}], "limits": limits}, source="test")


async def test_texts_of_a_client_that_left_are_in_no_further_pass(folder: Path) -> None:
    encoder = HeldEncoder()
    async with two_tenants(folder, encoder) as (running, cache):
        calls, before = cache.embedder.begun["embed"], len(encoder.passes)
        with encoder.held():
            async with meanwhile(embed(running, "a", [f"left {number}" for number in range(40)])):
                await until_begun(cache, calls + 1)

                async def runs() -> bool:
                    return len(encoder.passes) > before

                assert await eventually(runs, within_s=30)

            async def left() -> bool:
                return not cache.embedder.target.waiting

            assert await eventually(left, within_s=30)
        assert (await embed(running, "b", ["stays"])).status == 200
    passes = encoder.passes[before:]
    assert [text for each in passes for text in each if text.startswith("left")] == [
        f"left {number}" for number in range(MOST)
    ]
