"""A store of responses in a process of its own, which is filled and timed over the private wire."""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.peers.endpoint import SCRIPTS
from deployments.responses.store.registry import open_store
from deployments.wire.direct_calls import DirectCalls
from deployments.wire.http1 import Origin, request_bytes
from deployments.wire.pool import ConnectionPool
from serve_app.settings import ResponsesSettings
from serve_app.stored_responses.values import Found, NewItem, Outcome, Record
from serve_app.wire.calls import RESPONSES, Wire
from serve_app.wire.private_address import PrivateAddress

TEXT = "All of the words of an answer of usual length. " * 20
"""About a kilobyte, which is the size of 250 tokens."""

WRITES = 500


def settings_for(folder: Path) -> ResponsesSettings:
    return ResponsesSettings(path=str(folder / "store"), max_entries=10_000_000, min_free_disk_bytes=0)


def record(tenant: str = "default") -> Record:
    name = f"resp_{uuid.uuid4().hex}"
    output = [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": TEXT}]}]
    response = {"id": name, "object": "response", "status": "completed", "output": output, "tools": []}
    return Record(
        id=name,
        tenant=tenant,
        status="completed",
        response=msgspec.json.encode(response),
        input=msgspec.json.encode([{"type": "message", "role": "user", "content": TEXT}]),
        output=msgspec.json.encode(output),
        tokens=500,
    )


async def filled(folder: Path, count: int) -> list[str]:
    """The ids of ``count`` new responses."""
    store = open_store(settings_for(folder), time.time())
    ids = []
    for _ in range(count):
        each = record()
        await store.put(each, [], time.time())
        ids.append(each.id)
    await store.close()
    return ids


async def looked_up(folder: Path, ids: list[str], count: int) -> tuple[list[float], list[float]]:
    """Milliseconds of each look-up and of each write."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmarks.response_store",
        str(folder),
        stdout=asyncio.subprocess.PIPE,
        stdin=asyncio.subprocess.PIPE,
        cwd=SCRIPTS,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    pool = ConnectionPool(connect_timeout_s=5.0, idle_s=60.0, read_ahead=1 << 20)
    try:
        address = PrivateAddress(**json.loads(await process.stdout.readline()))
        caller = Caller(pool, Origin.behind(address))
        wanted = random.Random(0).choices(ids, k=count + 100)
        look_ups = [await caller.timed("get", "default", each) for each in wanted][100:]
        writes = [await caller.timed("put", record(), list[NewItem]()) for _ in range(WRITES)]
    finally:
        pool.close()
        process.stdin.close()
        await process.wait()
    return look_ups, writes


class Caller:
    """Calls as a gateway makes them (``deployments/wire/direct_calls.py``)."""

    def __init__(self, pool: ConnectionPool, origin: Origin) -> None:
        self._pool = pool
        self._origin = origin
        self._wire = Wire(RESPONSES)

    async def timed(self, method: str, *args: Any) -> float:
        """The milliseconds of one call. Raises: RuntimeError: the response was not found, or not stored."""
        began = time.perf_counter()
        body = self._wire.encode_arguments(method, args)
        request = request_bytes(self._origin, "POST", f"/{method}", {}, body)
        status, answer = await self._pool.ask(self._origin, request)
        result = self._wire.decode_result(method, answer)
        took = (time.perf_counter() - began) * 1000
        well = result is Outcome.STORED or (isinstance(result, Found) and result.record is not None)
        if status != 200 or not well:
            raise RuntimeError(f"{method}: {status} {result}")
        return took


async def serve(folder: Path) -> None:
    """Serve the store until standard input is closed."""
    store = open_store(settings_for(folder), time.time())

    async def get(tenant: str, response_id: str) -> Found:
        return await store.get(tenant, response_id, time.time())

    async def put(each: Record, items: list[NewItem]) -> Outcome:
        return await store.put(each, items, time.time())

    methods: dict[str, Any] = dict.fromkeys(RESPONSES, get) | {"put": put}
    calls = DirectCalls(RESPONSES, methods, "127.0.0.1")
    address = calls.address
    print(json.dumps({"url": address.url, "secret": address.secret, "socket": address.socket}), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await calls.stop()
    await store.close()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
