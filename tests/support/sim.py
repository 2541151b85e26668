"""A running scripted engine and a client of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from benchmarks.load import Client, Request, Sample
from sim_engine import NO_FAULTS, Faults, SimEngine, SimSettings, Stats

from serve_app.openai import sse

LIMIT_S = 10.0
FAST = SimSettings(itl_ms=1.0, tokens=12)
CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
LONG = "Tell me a story about the sea. " * 20
HOLD = {"x-sim-fault": "hang_before"}


@dataclass
class Sim:
    """A running engine, and a client of it."""

    engine: SimEngine
    url: str
    client: Client

    async def send(self, path: str, headers: dict[str, str] | None = None, **values: Any) -> Sample:
        return await self.client.send(Request(path, json.dumps(values).encode(), headers or {}, True))

    async def chat(self, text: str, headers: dict[str, str] | None = None, **values: Any) -> Sample:
        return await self.send(CHAT, headers, messages=[{"role": "user", "content": text}], **values)

    async def get(self, path: str) -> Sample:
        return await self.client.send(Request(path, keep_body=True))

    @asynccontextmanager
    async def held(self, count: int) -> AsyncIterator[list[asyncio.Task[Sample]]]:
        """So many requests that are never answered; they leave at the end."""
        before = self.engine.stats()
        taken = before.running + before.waiting + count
        tasks = [asyncio.create_task(self.chat("hold", HOLD)) for _ in range(count)]
        await self.until(lambda stats: stats.running + stats.waiting == taken)
        yield tasks
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    async def until(self, check: Any) -> Stats:
        async with asyncio.timeout(LIMIT_S):
            await self.engine.until(check)
        return self.engine.stats()


@asynccontextmanager
async def running(settings: SimSettings = FAST, faults: Faults = NO_FAULTS) -> AsyncIterator[Sim]:
    engine = SimEngine(settings, faults)
    url = await engine.start()
    try:
        async with Client(url, LIMIT_S) as client:
            yield Sim(engine, url, client)
    finally:
        await engine.stop()


def events(sample: Sample) -> list[dict[str, Any]]:
    """The decoded events of a stream, ``[DONE]`` left out."""
    assert sample.body is not None
    return [json.loads(data) for data in sse.iter_data(sample.body) if data != sse.DONE]


def decoded(sample: Sample) -> Any:
    assert sample.body is not None
    return json.loads(sample.body)


@dataclass(frozen=True)
class Streamed:
    """What a stream with token ids says."""

    ids: list[int]
    text: str
    finish_reason: str


def streamed(sample: Sample) -> Streamed:
    choices = [choice for chunk in events(sample) for choice in chunk["choices"]]
    ids = [token for choice in choices for token in choice.get("token_ids") or []]
    texts = [choice["text"] if "text" in choice else choice["delta"]["content"] for choice in choices]
    return Streamed(ids, "".join(texts), choices[-1]["finish_reason"])


async def open_stream(url: str, fault: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    body = json.dumps({"messages": [{"role": "user", "content": "Hello"}], "stream": True})
    head = f"POST {CHAT} HTTP/1.1\r\nhost: sim\r\nx-sim-fault: {fault}\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write((head + body).encode())
    return reader, writer


async def reset_of(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Wait for the other side to reset the connection."""
    async with asyncio.timeout(LIMIT_S):
        with pytest.raises(ConnectionResetError):
            await reader.read(-1)
        writer.close()
        with pytest.raises(ConnectionResetError):
            await writer.wait_closed()
