"""Qdrant's gRPC calls in front of its REST calls, for the calls that the cache's client makes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
from qdrant_client import AsyncQdrantClient
from qdrant_client import grpc as messages
from qdrant_client.conversions.conversion import GrpcToRest, RestToGrpc
from qdrant_client.grpc.collections_service_pb2_grpc import (
    CollectionsServicer,
    add_CollectionsServicer_to_server,
)
from qdrant_client.grpc.points_service_pb2_grpc import PointsServicer, add_PointsServicer_to_server
from qdrant_client.http.exceptions import UnexpectedResponse

STATUS = {404: grpc.StatusCode.NOT_FOUND, 409: grpc.StatusCode.ALREADY_EXISTS}


@asynccontextmanager
async def grpc_front(url: str) -> AsyncIterator[int]:
    """The port of a gRPC server that passes calls on to the REST server at ``url``."""
    rest = AsyncQdrantClient(url=url, check_compatibility=False)
    server = grpc.aio.server()
    add_PointsServicer_to_server(_Points(rest), server)  # type: ignore[no-untyped-call]
    add_CollectionsServicer_to_server(_Collections(rest), server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield port
    finally:
        await server.stop(0)
        await rest.close()


def _passed_on(call: Callable[[Any, Any], Awaitable[Any]]) -> Callable[[Any, Any, Any], Awaitable[Any]]:
    async def answer(servicer: Any, request: Any, context: Any) -> Any:
        try:
            return await call(servicer._rest, request)
        except UnexpectedResponse as error:
            status = STATUS.get(error.status_code or 0, grpc.StatusCode.INTERNAL)
            return await context.abort(status, str(error.structured()["status"]["error"]))

    return answer


def _filter(request: Any, name: str = "filter") -> Any:
    return GrpcToRest.convert_filter(getattr(request, name)) if request.HasField(name) else None


def _done(result: Any) -> Any:
    return messages.PointsOperationResponse(result=RestToGrpc.convert_update_result(result))


async def _exists(rest: AsyncQdrantClient, request: Any) -> Any:
    exists = await rest.collection_exists(request.collection_name)
    return messages.CollectionExistsResponse(result=messages.CollectionExists(exists=exists))


async def _create(rest: AsyncQdrantClient, request: Any) -> Any:
    await rest.create_collection(
        request.collection_name,
        vectors_config=GrpcToRest.convert_vectors_config(request.vectors_config),
        metadata=GrpcToRest.convert_payload(request.metadata),
    )
    return messages.CollectionOperationResponse(result=True)


async def _describe(rest: AsyncQdrantClient, request: Any) -> Any:
    info = await rest.get_collection(request.collection_name)
    return messages.GetCollectionInfoResponse(result=RestToGrpc.convert_collection_info(info))


async def _index(rest: AsyncQdrantClient, request: Any) -> Any:
    parameters = GrpcToRest.convert_payload_schema_params(request.field_index_params)
    return _done(
        await rest.create_payload_index(
            request.collection_name, request.field_name, parameters, wait=request.wait
        )
    )


async def _upsert(rest: AsyncQdrantClient, request: Any) -> Any:
    points = [GrpcToRest.convert_point_struct(point) for point in request.points]
    return _done(await rest.upsert(request.collection_name, points, wait=request.wait))


async def _set_payload(rest: AsyncQdrantClient, request: Any) -> Any:
    payload = GrpcToRest.convert_payload(request.payload)
    selector = GrpcToRest.convert_points_selector(request.points_selector)
    return _done(await rest.set_payload(request.collection_name, payload, selector, wait=request.wait))


async def _delete(rest: AsyncQdrantClient, request: Any) -> Any:
    selector = GrpcToRest.convert_points_selector(request.points)
    return _done(await rest.delete(request.collection_name, selector, wait=request.wait))


async def _get(rest: AsyncQdrantClient, request: Any) -> Any:
    ids = [GrpcToRest.convert_point_id(point_id) for point_id in request.ids]
    records = await rest.retrieve(request.collection_name, ids)
    return messages.GetResponse(result=[RestToGrpc.convert_retrieved_point(record) for record in records])


async def _query(rest: AsyncQdrantClient, request: Any) -> Any:
    found = await rest.query_points(
        request.collection_name,
        GrpcToRest.convert_query(request.query),
        query_filter=_filter(request),
        limit=request.limit,
    )
    return messages.QueryResponse(result=[RestToGrpc.convert_scored_point(point) for point in found.points])


async def _scroll(rest: AsyncQdrantClient, request: Any) -> Any:
    order = GrpcToRest.convert_order_by(request.order_by) if request.HasField("order_by") else None
    offset = GrpcToRest.convert_point_id(request.offset) if request.HasField("offset") else None
    records, following = await rest.scroll(
        request.collection_name,
        scroll_filter=_filter(request),
        limit=request.limit,
        order_by=order,
        offset=offset,
    )
    points = [RestToGrpc.convert_retrieved_point(record) for record in records]
    if following is None:
        return messages.ScrollResponse(result=points)
    return messages.ScrollResponse(
        result=points, next_page_offset=RestToGrpc.convert_extended_point_id(following)
    )


async def _count(rest: AsyncQdrantClient, request: Any) -> Any:
    counted = await rest.count(request.collection_name, count_filter=_filter(request), exact=request.exact)
    return messages.CountResponse(result=messages.CountResult(count=counted.count))


class _Collections(CollectionsServicer):  # type: ignore[misc]
    def __init__(self, rest: AsyncQdrantClient) -> None:
        self._rest = rest

    CollectionExists = _passed_on(_exists)
    Create = _passed_on(_create)
    Get = _passed_on(_describe)


class _Points(PointsServicer):  # type: ignore[misc]
    def __init__(self, rest: AsyncQdrantClient) -> None:
        self._rest = rest

    CreateFieldIndex = _passed_on(_index)
    Upsert = _passed_on(_upsert)
    SetPayload = _passed_on(_set_payload)
    Delete = _passed_on(_delete)
    Get = _passed_on(_get)
    Query = _passed_on(_query)
    Scroll = _passed_on(_scroll)
    Count = _passed_on(_count)
