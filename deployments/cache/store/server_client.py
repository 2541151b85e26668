"""The client of a Qdrant server: its settings, its key, and the reasons for its errors."""

from __future__ import annotations

import math
from collections.abc import Mapping

import grpc
import httpx
from qdrant_client import AsyncQdrantClient
from qdrant_client.common.client_exceptions import ResourceExhaustedResponse
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from deployments.cache.store.base import StoreError
from serve_app.settings.qdrant import QdrantSettings

MAX_CONNECTIONS = 64
KEEP_ALIVE_S = 30.0
MAX_RECONNECT_MS = 2000
"""By default gRPC waits up to two minutes before it reconnects, and refuses all calls until then."""

NOT_FOUND = 404


def api_key(settings: QdrantSettings, environment: Mapping[str, str]) -> str:
    """The server's key, empty if the settings name none.

    Raises:
        StoreError: the variable is not set, or has characters that no header may have.
    """
    if settings.key_env is None:
        return ""
    key = environment.get(settings.key_env, "").strip()  # files end with a newline
    if not key:
        raise StoreError(
            f"cache store {settings.url}: the variable {settings.key_env} (`key_env`) is not set "
            "where the cache runs"
        )
    if not (key.isascii() and key.isprintable()):
        raise StoreError(
            f"cache store {settings.url}: the variable {settings.key_env} (`key_env`) holds what no header "
            "may hold"
        )
    return key


def connected(settings: QdrantSettings, key: str) -> AsyncQdrantClient:
    """A client that connects with its first call."""
    return AsyncQdrantClient(
        url=settings.url,
        api_key=key or None,
        prefer_grpc=settings.prefer_grpc,
        grpc_port=settings.grpc_port,
        grpc_options={"grpc.max_reconnect_backoff_ms": MAX_RECONNECT_MS},
        timeout=math.ceil(settings.timeout_s),
        # The check runs on a thread that outlives the store, and only warns.
        check_compatibility=False,
        # By default the client opens a new connection for every call to a server on this machine.
        limits=httpx.Limits(
            max_connections=MAX_CONNECTIONS,
            max_keepalive_connections=MAX_CONNECTIONS,
            keepalive_expiry=KEEP_ALIVE_S,
        ),
    )


def is_missing(error: Exception) -> bool:
    """Whether the server says that the collection does not exist."""
    if isinstance(error, grpc.aio.AioRpcError):
        return error.code() is grpc.StatusCode.NOT_FOUND
    return isinstance(error, UnexpectedResponse) and error.status_code == NOT_FOUND


def reason_of(error: Exception) -> str:
    """What went wrong. Of the server's response only its own error message is included."""
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name} {error.details() or ''}"
    if isinstance(error, UnexpectedResponse):
        return f"{error.status_code} {error.reason_phrase} {_server_message(error)}"
    if isinstance(error, ResourceExhaustedResponse):
        return f"429 {error}"
    source = error.source if isinstance(error, ResponseHandlingException) else error
    if isinstance(source, httpx.HTTPError):
        return f"{type(source).__name__} {source}"
    return f"an answer that is not Qdrant's ({type(source).__name__})"


def _server_message(error: UnexpectedResponse) -> str:
    try:
        return str(error.structured()["status"]["error"])
    except (KeyError, TypeError, ValueError):
        return ""
