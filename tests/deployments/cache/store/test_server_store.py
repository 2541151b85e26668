"""The server store's own promises, over real HTTP: faults, time-outs, coming back, what it makes there."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import Any

import pytest
from qdrant_grpc import grpc_front
from store_samples import DIMENSION, EMBEDDER, entry, unit
from support.qdrant_rest import Fault, QdrantRest

from deployments.cache.store import StoreError
from deployments.cache.store.server import ServerStore
from deployments.launcher.ports import free_port
from serve_app.cache.entry import Selection
from serve_app.cache.eviction import Volume
from serve_app.settings.qdrant import QdrantSettings

KEY = "a-very-secret-key"
TIMEOUT_S = 0.5
PATIENT_S = 30.0

# Tests speak to loopback.
pytestmark = pytest.mark.filterwarnings("ignore:Api key is used with an insecure connection")


@asynccontextmanager
async def opened(
    url: str, environment: dict[str, str] | None = None, **settings: Any
) -> AsyncIterator[ServerStore]:
    values = QdrantSettings(**{"url": url, "timeout_s": PATIENT_S, **settings})
    store = await ServerStore.open(values, DIMENSION, EMBEDDER, environment or {})
    try:
        yield store
    finally:
        await store.close()


async def test_the_collection_is_made_once_with_its_indexes(qdrant: QdrantRest) -> None:
    async with opened(qdrant.url) as store:
        name = store.location.rpartition("/")[2]
    async with opened(qdrant.url):
        pass
    collection = qdrant.collections[name]
    assert list(qdrant.collections) == [name]
    assert name.startswith("promptly-cache-v2-")
    assert collection.request["vectors"]["size"] == DIMENSION
    assert collection.request["vectors"]["distance"] == "Cosine"
    assert collection.request["metadata"] == {"embedder": EMBEDDER}
    assert collection.indexes["partition"]["is_tenant"] is True
    fields = {"partition", "tenant", "model", "tags", "created_at", "expires_at", "value"}
    assert set(collection.indexes) == fields
    assert len([call for call in qdrant.calls if call.endswith("/index")]) == 7


async def test_what_the_settings_ask_of_the_collection_is_asked(qdrant: QdrantRest) -> None:
    settings = {"quantize": True, "on_disk": True, "shard_number": 3, "replication_factor": 2}
    async with opened(qdrant.url, **settings) as store:
        stored = entry()
        await store.put(stored)
        assert len(await store.nearest("p", unit(1), 150.0, 0.0, 3)) == 1
    (collection,) = qdrant.collections.values()
    assert collection.request["vectors"]["on_disk"] is True
    assert collection.request["shard_number"] == 3
    assert collection.request["replication_factor"] == 2
    assert collection.request["quantization_config"]["scalar"]["type"] == "int8"


async def test_two_applications_may_make_the_collection_at_once(qdrant: QdrantRest) -> None:
    async with opened(qdrant.url) as first, opened(qdrant.url, collection="other"):
        pass
    qdrant.wipe()
    async with asyncio.TaskGroup() as group:
        both = [group.create_task(_open_and_count(qdrant.url)) for _ in range(2)]
    assert [task.result() for task in both] == [0, 0]
    assert list(qdrant.collections) == [first.location.rpartition("/")[2]]


async def test_a_collection_of_another_embedder_is_not_used(qdrant: QdrantRest) -> None:
    async with opened(qdrant.url):
        pass
    (collection,) = qdrant.collections.values()
    collection.request["metadata"] = {"embedder": "another"}
    with pytest.raises(StoreError, match=r"made by another, not by test:float32"):
        await _open_and_count(qdrant.url)
    collection.request["vectors"]["size"] = 3
    with pytest.raises(StoreError, match="dimensions"):
        await _open_and_count(qdrant.url)


async def test_points_that_are_not_entries_are_passed_over(qdrant: QdrantRest) -> None:
    ours = entry(vector=unit(1, 1))
    async with opened(qdrant.url) as store:
        await store.put(ours)
        await _put_raw(qdrant, {"partition": "p", "tenant": "t", "created_at": 100.0, "expires_at": 200.0})
        assert await store.count() == 2
        matches = await store.nearest("p", unit(1), 150.0, 0.0, 3)
        assert [match.entry.entry_id for match in matches] == [ours.entry_id]
        assert [one.entry_id for one in await store.select(Selection(tenant="t"), 10)] == [ours.entry_id]


@pytest.mark.parametrize("prefer_grpc", [False, True])
async def test_a_server_that_is_not_there_is_an_error_with_its_address(prefer_grpc: bool) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(StoreError, match=url):
        await _open_and_count(url, prefer_grpc=prefer_grpc, grpc_port=free_port())


@pytest.mark.parametrize("prefer_grpc", [False, True])
async def test_a_server_that_says_nothing_is_given_up_in_time(prefer_grpc: bool) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        port = silent.getsockname()[1]
        begun = time.monotonic()
        with pytest.raises(StoreError, match=r"no answer within 0\.5 s"):
            await _open_and_count(
                f"http://127.0.0.1:{port}", timeout_s=TIMEOUT_S, prefer_grpc=prefer_grpc, grpc_port=port
            )
        assert time.monotonic() - begun < 10 * TIMEOUT_S


async def test_tls_where_there_is_none_is_an_error(qdrant: QdrantRest) -> None:
    with pytest.raises(StoreError, match="https://127"):
        await _open_and_count(qdrant.url.replace("http", "https"))


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault.ERROR, "500 .*broken on purpose"),
        (Fault.GARBAGE, "not Qdrant's"),
        (Fault.OTHER_JSON, "not Qdrant's"),
        (Fault.CUT, "Error"),
    ],
)
async def test_a_fault_is_an_error_of_every_call_and_passes(
    qdrant: QdrantRest, fault: Fault, reason: str
) -> None:
    async with opened(qdrant.url) as store:
        stored = entry()
        await store.put(stored)
        qdrant.fault = fault
        for call in (
            lambda: store.get(stored.entry_id),
            lambda: store.nearest("p", unit(1), 150.0, 0.0, 3),
            lambda: store.put(stored),
            lambda: store.select(Selection(tenant="t"), 1),
            lambda: store.delete(Selection(tenant="t")),
            lambda: store.delete_expired(150.0),
            lambda: store.evict("t", Volume(1)),
            store.count,
        ):
            with pytest.raises(StoreError, match=reason) as caught:
                await call()
            assert store.location in str(caught.value)
            assert "a secret text" not in str(caught.value)
            assert caught.value.__suppress_context__
        qdrant.fault = None
        assert await store.get(stored.entry_id) is not None


async def test_a_hanging_call_ends_in_time_and_leaves_others_alone(qdrant: QdrantRest) -> None:
    async with opened(qdrant.url, timeout_s=TIMEOUT_S) as store:
        stored = entry()
        await store.put(stored)
        qdrant.fault, qdrant.fault_path = Fault.HANG, "/points/query"
        search = asyncio.create_task(store.nearest("p", unit(1), 150.0, 0.0, 3))
        await qdrant.hanging.wait()
        assert await store.get(stored.entry_id) is not None
        with pytest.raises(StoreError, match=r"no answer within 0\.5 s"):
            await search
        qdrant.fault = None
        assert len(await store.nearest("p", unit(1), 150.0, 0.0, 3)) == 1


async def test_a_change_that_is_only_queued_is_not_reported_as_done(qdrant: QdrantRest) -> None:
    async with opened(qdrant.url) as store:
        await store.put(entry())
        qdrant.fault, qdrant.fault_path = Fault.SLOW_QUEUE, "/points/delete"
        with pytest.raises(StoreError, match="acknowledged"):
            await store.delete(Selection(tenant="t"))


async def test_a_server_that_comes_back_is_used_again(qdrant: QdrantRest) -> None:
    async with opened(qdrant.url) as store:
        stored = entry()
        await store.put(stored)
        await qdrant.stop()
        with pytest.raises(StoreError, match=qdrant.url):
            await store.get(stored.entry_id)
        await qdrant.start()
        assert await store.get(stored.entry_id) is not None


async def test_a_server_that_comes_back_empty_gets_its_collection_again(qdrant: QdrantRest) -> None:
    async with opened(qdrant.url) as store:
        await store.put(entry())
        qdrant.wipe()
        with pytest.raises(StoreError, match="404"):
            await store.count()
        stored = entry()
        await store.put(stored)
        assert len(await store.nearest("p", unit(1), 150.0, 0.0, 3)) == 1
        assert len(qdrant.collections) == 1


async def test_calls_that_wait_for_the_collection_end_in_time_together(qdrant: QdrantRest) -> None:
    async with opened(qdrant.url, timeout_s=TIMEOUT_S) as store:
        qdrant.wipe()
        with pytest.raises(StoreError, match="404"):
            await store.count()
        qdrant.fault = Fault.HANG
        begun = time.monotonic()
        counts = await asyncio.gather(*(store.count() for _ in range(20)), return_exceptions=True)
        assert time.monotonic() - begun < 10 * TIMEOUT_S
        assert all(isinstance(count, StoreError) for count in counts)


async def test_the_same_holds_over_grpc(qdrant: QdrantRest) -> None:
    async with (
        grpc_front(qdrant.url) as port,
        opened(qdrant.url, prefer_grpc=True, grpc_port=port) as store,
    ):
        await store.put(entry())
        qdrant.wipe()
        with pytest.raises(StoreError, match="NOT_FOUND"):
            await store.count()
        assert await store.count() == 0
        qdrant.fault = Fault.ERROR
        with pytest.raises(StoreError, match=r"INTERNAL .*broken on purpose"):
            await store.count()


async def test_one_connection_serves_calls_that_follow_each_other(qdrant: QdrantRest) -> None:
    async with opened(qdrant.url) as store:
        for _ in range(10):
            await store.count()
    assert len(qdrant.connections) == 1


async def test_the_key_is_sent(qdrant: QdrantRest) -> None:
    qdrant.api_key = KEY
    async with opened(qdrant.url, {"QDRANT_KEY": f"{KEY}\n"}, key_env="QDRANT_KEY") as store:
        await store.put(entry())
        assert await store.count() == 1


async def test_a_refused_key_is_not_shown(qdrant: QdrantRest) -> None:
    qdrant.api_key = "another"
    with pytest.raises(StoreError, match="401") as caught:
        await _open_and_count(qdrant.url, {"QDRANT_KEY": KEY}, key_env="QDRANT_KEY")
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("environment", [{}, {"QDRANT_KEY": " \n"}, {"QDRANT_KEY": "clé"}])
async def test_a_key_that_is_missing_or_no_header_is_an_error(
    qdrant: QdrantRest, environment: dict[str, str]
) -> None:
    with pytest.raises(StoreError, match="QDRANT_KEY") as caught:
        await _open_and_count(qdrant.url, environment, key_env="QDRANT_KEY")
    assert "clé" not in str(caught.value)
    assert qdrant.calls == []


async def _open_and_count(url: str, environment: dict[str, str] | None = None, **settings: Any) -> int:
    async with opened(url, environment, **settings) as store:
        return await store.count()


async def _put_raw(qdrant: QdrantRest, payload: dict[str, Any]) -> None:
    import qdrant_edge as qe

    (collection,) = qdrant.collections.values()
    collection.shard.update(qe.UpdateOperation.upsert_points([qe.Point(5, [1.0] * DIMENSION, payload)]))
