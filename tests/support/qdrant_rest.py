"""Qdrant's REST shape over the embedded engine: the calls that the cache's client makes, and faults.

It runs in its caller's event loop, on a real socket. What it holds outlives ``stop``, as a disk does, and a
kill, where it runs alone: ``python -m support.qdrant_rest PORT FOLDER``.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from enum import Enum
from pathlib import Path
from typing import Any

import qdrant_edge as qe
from aiohttp import web

from deployments.launcher.ports import free_port

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

HNSW = {"m": 0, "ef_construct": 100, "full_scan_threshold": 10_000}
OPTIMIZER = {"default_segment_number": 0, "flush_interval_sec": 5}
SCHEMAS = {"keyword": qe.PayloadSchemaType.Keyword, "float": qe.PayloadSchemaType.Float}


class Fault(Enum):
    """What becomes of a call."""

    HANG = "hang"
    LATE = "late"
    ERROR = "error"
    GARBAGE = "garbage"
    OTHER_JSON = "other json"
    CUT = "cut"
    SLOW_QUEUE = "slow queue"


class Collection:
    """One shard in a folder, and what its creation asked for, which is in a file beside the folder."""

    def __init__(self, folder: Path, name: str, request: dict[str, Any]) -> None:
        vectors = qe.EdgeVectorParams(size=request["vectors"]["size"], distance=qe.Distance.Cosine)
        self.name, self.request = name, request
        self.indexes: dict[str, dict[str, Any]] = {}
        self._folder = folder
        if folder.exists():
            self.shard = qe.EdgeShard.load(str(folder))
        else:
            folder.mkdir(parents=True)
            self.shard = qe.EdgeShard.create(str(folder), qe.EdgeConfig(vectors=vectors))
            self._write()

    @classmethod
    def read(cls, about: Path) -> Collection:
        """``about``: the file."""
        said = json.loads(about.read_bytes())
        collection = cls(about.with_suffix(""), said["name"], said["request"])
        collection.indexes = said["indexes"]
        return collection

    def index(self, name: str, schema: dict[str, Any]) -> None:
        self.shard.update(qe.UpdateOperation.create_field_index(name, SCHEMAS[schema["type"]]))
        self.indexes[name] = schema
        self._write()

    def drop(self) -> None:
        self.shard.close()
        self._about.unlink()

    @property
    def _about(self) -> Path:
        return self._folder.with_suffix(".json")

    def _write(self) -> None:
        said = {"name": self.name, "request": self.request, "indexes": self.indexes}
        self._about.write_text(json.dumps(said), encoding="utf-8")


class QdrantRest:
    """``fault`` holds for every call, or only for those whose path contains ``fault_path``. A write that
    hangs is done when ``let`` is called, whether its client still waits or not; what is late is done at once,
    and answered then."""

    def __init__(self, folder: Path, api_key: str | None = None, port: int | None = None) -> None:
        self.port = free_port() if port is None else port
        self.url = f"http://127.0.0.1:{self.port}"
        self.api_key = api_key
        self.fault: Fault | None = None
        self.fault_path = ""
        self.calls: list[str] = []
        self.connections: set[Any] = set()
        self.hanging = asyncio.Event()
        self.collections: dict[str, Collection] = {}
        self._let = asyncio.Event()
        self._folder = folder
        self._made = 0
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application(middlewares=[self._gate], client_max_size=2**26)
        app.add_routes(self._routes())
        # A handler goes on when its client has left, as a server's does.
        self._runner = web.AppRunner(app, handler_cancellation=False, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()

    async def stop(self) -> None:
        self.let()
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await runner.cleanup()

    def let(self) -> None:
        """Go on with what hangs."""
        self._let.set()

    def wipe(self) -> None:
        """Come back empty."""
        for collection in self.collections.values():
            collection.drop()
        self.collections.clear()

    def read(self) -> None:
        """Hold again what a killed process held."""
        for about in self._folder.glob("*.json"):
            collection = Collection.read(about)
            self.collections[collection.name] = collection
            self._made = max(self._made, int(about.stem))

    async def close(self) -> None:
        await self.stop()
        self.wipe()
        shutil.rmtree(self._folder, ignore_errors=True)

    @web.middleware
    async def _gate(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self.calls.append(f"{request.method} {request.path}")
        self.connections.add(request.transport)
        if self.api_key is not None and request.headers.get("api-key") != self.api_key:
            return web.Response(status=401, text=f"Invalid API key {request.headers.get('api-key')}")
        try:
            if self.fault is not None and self.fault_path in request.path:
                return await self._faulty(self.fault, request, handler)
            return await handler(request)
        except web.HTTPException:
            raise
        except Exception as error:
            return _error(400, f"Wrong input: {error}")

    async def _faulty(self, fault: Fault, request: web.Request, handler: Handler) -> web.StreamResponse:
        match fault:
            case Fault.HANG:
                await request.read()
                await self._hold()
                answer = await handler(request)
            case Fault.LATE:
                answer = await handler(request)
                await self._hold()
            case Fault.ERROR:
                answer = _error(500, "Service internal error: broken on purpose")
            case Fault.GARBAGE:
                answer = web.Response(body=b'{"result": [\xff', content_type="application/json")
            case Fault.OTHER_JSON:
                answer = web.json_response({"result": {"points": "a secret text", "count": "many"}})
            case Fault.CUT:
                assert request.transport is not None
                request.transport.close()
                answer = web.Response()
            case Fault.SLOW_QUEUE:
                answer = _ok({"operation_id": 1, "status": "acknowledged"})
        return answer

    async def _hold(self) -> None:
        self.hanging.set()
        await self._let.wait()

    def _routes(self) -> list[web.RouteDef]:
        one = "/collections/{name}"
        return [
            web.get(f"{one}/exists", self._exists),
            web.get(one, self._describe),
            web.put(one, self._create),
            web.delete(one, self._drop),
            web.put(f"{one}/index", self._index),
            web.post(f"{one}/points", self._retrieve),
            web.put(f"{one}/points", self._upsert),
            web.post(f"{one}/points/payload", self._set_payload),
            web.post(f"{one}/points/query", self._query),
            web.post(f"{one}/points/scroll", self._scroll),
            web.post(f"{one}/points/count", self._count),
            web.post(f"{one}/points/delete", self._delete),
        ]

    def _collection(self, request: web.Request) -> Collection:
        name = request.match_info["name"]
        if name not in self.collections:
            message = f"Not found: Collection `{name}` doesn't exist!"
            raise web.HTTPNotFound(text=_error(404, message).text, content_type="application/json")
        return self.collections[name]

    async def _exists(self, request: web.Request) -> web.Response:
        return _ok({"exists": request.match_info["name"] in self.collections})

    async def _create(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name in self.collections:
            return _error(409, f"Wrong input: Collection `{name}` already exists!")
        self._made += 1
        self.collections[name] = Collection(self._folder / str(self._made), name, await request.json())
        return _ok(True)

    async def _drop(self, request: web.Request) -> web.Response:
        self._collection(request).drop()
        del self.collections[request.match_info["name"]]
        return _ok(True)

    async def _describe(self, request: web.Request) -> web.Response:
        collection = self._collection(request)
        asked = collection.request
        indexes = {
            name: {"data_type": schema["type"], "params": schema, "points": 0}
            for name, schema in collection.indexes.items()
        }
        config = {
            "params": {"vectors": asked["vectors"]},
            "hnsw_config": {**HNSW, **(asked.get("hnsw_config") or {})},
            "optimizer_config": OPTIMIZER,
            "wal_config": {"wal_capacity_mb": 32, "wal_segments_ahead": 0},
            "quantization_config": asked.get("quantization_config"),
            "metadata": asked.get("metadata"),
        }
        return _ok(
            {
                "status": "green",
                "optimizer_status": "ok",
                "segments_count": 1,
                "points_count": _size(collection),
                "config": config,
                "payload_schema": indexes,
            }
        )

    async def _index(self, request: web.Request) -> web.Response:
        collection, body = self._collection(request), await request.json()
        name, schema = body["field_name"], body["field_schema"]
        schema = {"type": schema} if isinstance(schema, str) else schema
        collection.index(name, schema)
        return _done()

    async def _upsert(self, request: web.Request) -> web.Response:
        collection, body = self._collection(request), await request.json()
        points = [qe.Point(point["id"], point["vector"], point["payload"]) for point in body["points"]]
        collection.shard.update(qe.UpdateOperation.upsert_points(points))
        return _done()

    async def _set_payload(self, request: web.Request) -> web.Response:
        collection, body = self._collection(request), await request.json()
        condition = _filter(body["filter"])
        assert condition is not None
        collection.shard.update(qe.UpdateOperation.set_payload_by_filter(condition, body["payload"]))
        return _done()

    async def _retrieve(self, request: web.Request) -> web.Response:
        collection, body = self._collection(request), await request.json()
        points = collection.shard.retrieve(body["ids"], with_payload=True, with_vector=False)
        return _ok([_record(point) for point in points])

    async def _query(self, request: web.Request) -> web.Response:
        collection, body = self._collection(request), await request.json()
        nearest = qe.Query.Nearest(body["query"]["nearest"])
        search = qe.SearchRequest(nearest, body["limit"], filter=_filter(body["filter"]), with_payload=True)
        points = [
            {**_record(point), "version": point.version, "score": point.score}
            for point in collection.shard.search(search)
        ]
        return _ok({"points": points})

    async def _scroll(self, request: web.Request) -> web.Response:
        collection, body = self._collection(request), await request.json()
        order = body.get("order_by")
        scroll = qe.ScrollRequest(
            offset=body.get("offset"),
            limit=body["limit"],
            filter=_filter(body.get("filter")),
            with_payload=True,
            order_by=None if order is None else qe.OrderBy(order["key"]),
        )
        records, following = collection.shard.scroll(scroll)
        return _ok(
            {
                "points": [_record(record) for record in records],
                "next_page_offset": None if following is None else str(following),
            }
        )

    async def _count(self, request: web.Request) -> web.Response:
        collection, body = self._collection(request), await request.json()
        return _ok({"count": _size(collection, _filter(body.get("filter")))})

    async def _delete(self, request: web.Request) -> web.Response:
        collection, body = self._collection(request), await request.json()
        if "points" in body:
            operation = qe.UpdateOperation.delete_points(body["points"])
        else:
            condition = _filter(body["filter"])
            assert condition is not None
            operation = qe.UpdateOperation.delete_points_by_filter(condition)
        collection.shard.update(operation)
        return _done()


def _size(collection: Collection, condition: qe.Filter | None = None) -> int:
    return int(collection.shard.count(qe.CountRequest(exact=True, filter=condition)))


def _record(point: Any) -> dict[str, Any]:
    return {"id": str(point.id), "payload": point.payload}


def _filter(body: dict[str, Any] | None) -> qe.Filter | None:
    return None if body is None else qe.Filter(must=[_condition(part) for part in body["must"]])


def _condition(part: dict[str, Any]) -> Any:
    if "has_id" in part:
        return qe.HasIdCondition(set(part["has_id"]))
    if part.get("match") is not None:
        return qe.FieldCondition(part["key"], match=qe.MatchValue(part["match"]["value"]))
    limits = {name: value for name, value in part["range"].items() if value is not None}
    return qe.FieldCondition(part["key"], range=qe.RangeFloat(**limits))


def _ok(result: Any) -> web.Response:
    return web.json_response({"result": result, "status": "ok", "time": 0.0})


def _done() -> web.Response:
    return _ok({"operation_id": 1, "status": "completed"})


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"status": {"error": message}, "time": 0.0}, status=status)


@asynccontextmanager
async def on_a_server(folder: Path) -> AsyncIterator[dict[str, Any]]:
    """The settings of a cache on such a server, while it runs."""
    server = QdrantRest(folder / "qdrant")
    await server.start()
    try:
        yield {"store": "qdrant", "qdrant": {"url": server.url, "timeout_s": 30.0}}
    finally:
        await server.close()


async def serve(folder: Path, port: int) -> None:
    """Until the process ends."""
    server = QdrantRest(folder, port=port)
    server.read()
    await server.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[2]), int(sys.argv[1])))
