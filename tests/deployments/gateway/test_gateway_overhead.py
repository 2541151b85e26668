"""The gateway's own part is never the engine's, whatever is asked."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from local_cache import local_cache
from scripted_member import Member, listening
from support.gateway import FAST, MODEL, Running, SimSettings, gateway
from support.graph import eventually

from serve_app.request.record import RequestRecord
from serve_app.settings.paths import ENGINE_PATHS

WORK_S = 0.4
"""What the engine takes for each request."""

OWN_MS = 250.0
"""More than the gateway needs on a busy machine, and well below the engine's time."""

OVERHEAD = re.compile(r"overhead;dur=([0-9.]+)")


async def slow_engine(request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(WORK_S)
    if request.path == "/pooling":
        return web.json_response({"data": [{"data": [1.0]}]})
    return web.json_response({"model": MODEL, "results": [{"index": 0, "relevance_score": 0.5}]})


@asynccontextmanager
async def slow(records: list[RequestRecord]) -> AsyncIterator[Running]:
    member = Member(slow_engine)
    async with listening(member):
        others = [member.upstream(kind="vllm", paths=list(ENGINE_PATHS), health_period_s=0.05)]
        async with gateway(others=others, sinks=[records.append]) as running:
            yield running


async def the_record(records: list[RequestRecord]) -> RequestRecord:
    async def there() -> bool:
        return any(record.model for record in records)

    assert await eventually(there, within_s=5)
    return next(record for record in records if record.model)


RELAYED: list[tuple[str, dict[str, Any]]] = [
    ("/v1/rerank", {"query": "q", "documents": ["a"]}),
    ("/pooling", {"input": "a", "task": "plugin"}),
]


@pytest.mark.parametrize(("path", "fields"), RELAYED)
async def test_the_time_of_an_engine_that_is_relayed_is_not_overhead(
    path: str, fields: dict[str, Any]
) -> None:
    records: list[RequestRecord] = []
    async with slow(records) as running:
        answer = await running.send({"model": MODEL, **fields}, path)
        record = await the_record(records)
    assert answer.status == 200, answer.body
    assert record.upstream_ms >= WORK_S * 1000
    assert record.overhead_ms < OWN_MS
    (overhead,) = OVERHEAD.findall(answer.headers["server-timing"])
    assert float(overhead) < OWN_MS


async def test_the_embedders_time_is_not_overhead(tmp_path: Path) -> None:
    records: list[RequestRecord] = []
    async with (
        local_cache(tmp_path) as cache,
        gateway(FAST, handles=cache.handles, sinks=[records.append], **cache.args) as running,
    ):
        answer = await running.send({"model": "words", "input": "hi"}, "/v1/embeddings")
        record = await the_record(records)
    assert answer.status == 200, answer.body
    assert "embedder" in {step.name for step in record.steps}
    assert record.upstream_ms > 0
    assert OVERHEAD.search(answer.headers["server-timing"])


async def test_an_engine_that_did_not_answer_in_time_worked_all_the_same() -> None:
    records: list[RequestRecord] = []
    never = SimSettings(first_token_ms=60_000.0)
    async with gateway(never, sinks=[records.append]) as running:
        answer = await running.post("hello", {"x-request-timeout-ms": "400"})
        record = await the_record(records)
    assert (answer.status, answer.error["code"]) == (504, "deadline_exceeded")
    assert (record.error_status, record.chose_deadline) == (504, True)
    assert record.overhead_ms < OWN_MS
