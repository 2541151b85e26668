"""Both back ends, each in a place of its own.

With ``PROMPTLY_TEST_QDRANT_URL`` the server's tests run against that Qdrant (gRPC at
``PROMPTLY_TEST_QDRANT_GRPC_PORT``, 6334 by default; the key in ``PROMPTLY_TEST_QDRANT_KEY``, if it wants
one), else against Qdrant's REST and gRPC shapes over the embedded engine.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from qdrant_client import AsyncQdrantClient
from qdrant_grpc import grpc_front
from store_samples import BackEnd, Opener
from support.qdrant_rest import QdrantRest

from deployments.cache.store import CacheStore
from deployments.cache.store.edge import EdgeStore
from deployments.cache.store.sealed import SealedStore, Sealer
from deployments.cache.store.server import ServerStore
from serve_app.settings.qdrant import QdrantSettings

REAL_URL = os.environ.get("PROMPTLY_TEST_QDRANT_URL")
KEY_ENV = "PROMPTLY_TEST_QDRANT_KEY"
BACK_ENDS = ["edge", "server", "server_grpc", "sealed"]


@pytest.fixture(params=BACK_ENDS)
async def back_end(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[BackEnd]:
    async with _place(request.param, tmp_path) as opener:
        back_end = BackEnd(opener)
        yield back_end
        for store in back_end.opened:
            await store.close()


@pytest.fixture
async def store(back_end: BackEnd) -> CacheStore:
    return await back_end.open()


@pytest.fixture
async def qdrant(tmp_path: Path) -> AsyncIterator[QdrantRest]:
    """A server that can be told to fail."""
    server = QdrantRest(tmp_path / "qdrant")
    await server.start()
    yield server
    await server.close()


def _place(name: str, folder: Path) -> AbstractAsyncContextManager[Opener]:
    if name == "edge":
        return _edge(folder)
    return _sealed(folder) if name == "sealed" else _server(folder, name == "server_grpc")


@asynccontextmanager
async def _sealed(folder: Path) -> AsyncIterator[Opener]:
    async def open_sealed(dimension: int, embedder: str) -> CacheStore:
        return SealedStore(await EdgeStore.open(str(folder), dimension, embedder), Sealer([b"k" * 32]))

    yield open_sealed


@asynccontextmanager
async def _edge(folder: Path) -> AsyncIterator[Opener]:
    async def open_edge(dimension: int, embedder: str) -> CacheStore:
        return await EdgeStore.open(str(folder), dimension, embedder)

    yield open_edge


@asynccontextmanager
async def _server(folder: Path, prefer_grpc: bool) -> AsyncIterator[Opener]:
    async with _address(folder, prefer_grpc) as (url, grpc_port):
        settings = QdrantSettings(
            url=url,
            key_env=KEY_ENV if os.environ.get(KEY_ENV) else None,
            prefer_grpc=prefer_grpc,
            grpc_port=grpc_port,
            timeout_s=20.0,
            collection=f"test-{uuid4().hex[:8]}",
        )

        async def open_server(dimension: int, embedder: str) -> CacheStore:
            return await ServerStore.open(settings, dimension, embedder)

        yield open_server
        await _drop(settings)


@asynccontextmanager
async def _address(folder: Path, prefer_grpc: bool) -> AsyncIterator[tuple[str, int]]:
    if REAL_URL:
        yield REAL_URL, int(os.environ.get("PROMPTLY_TEST_QDRANT_GRPC_PORT", "6334"))
        return
    server = QdrantRest(folder / "qdrant")
    await server.start()
    if prefer_grpc:
        async with grpc_front(server.url) as port:
            yield server.url, port
    else:
        yield server.url, server.port
    await server.close()


async def _drop(settings: QdrantSettings) -> None:
    if not REAL_URL:
        return
    client = AsyncQdrantClient(url=REAL_URL, api_key=os.environ.get(KEY_ENV), check_compatibility=False)
    for collection in (await client.get_collections()).collections:
        if collection.name.startswith(settings.collection):
            await client.delete_collection(collection.name)
    await client.close()
