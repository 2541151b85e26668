"""A request's way into the application without the wrapper that Serve puts around every request.

A replica that answers HTTP itself ("direct ingress") wraps each request of Ray Serve 2.60: ids, header scans,
route matching, a context, and a coroutine around every chunk (its cost: docs/benchmarks.md).
:class:`DirectIngress` calls the application itself and keeps Serve's accounts, which the drain, autoscaling,
the request metrics and the dashboard read.

Private names of ``ray.serve._private.replica.Replica`` are read here and nowhere else. Where one is missing,
or a setting asks for what only Serve's wrapper does (a request time-out, a bounded queue, its tracing, a
thread for user code), :func:`direct_ingress` finds nothing, and Serve's wrapper serves the request: slower,
the same answer. When Ray moves, watch ``_direct_ingress_asgi``: what it does around ``_call_http_entrypoint``
is what stands below.
"""

from __future__ import annotations

import time
from typing import Any, Final

import ray.serve.context
from ray.serve._private.common import RequestMetadata, RequestProtocol
from ray.serve._private.logging_utils import format_client_address
from ray.serve._private.tracing_utils import is_tracing_enabled
from starlette.types import ASGIApp, Receive, Scope, Send

from deployments.platform.request_account import ACCOUNT, RequestAccount, request_id

NEEDED: Final = (
    "_deployment_id",
    "_http_options",
    "_record_errors_and_metrics",
    "_route_prefix",
    "_start_request",
    "_user_callable_asgi_app",
    "_user_callable_wrapper",
    "max_queued_requests",
)
SERVES_OWN: Final = "/-/"
"""Serve answers these paths itself: its health check and its routes."""


class DirectIngress:
    """One Serve replica's application, with Serve's accounts."""

    def __init__(self, replica: Any) -> None:
        self._replica = replica
        self._app: ASGIApp = replica._user_callable_asgi_app
        self._app_name: str = replica._deployment_id.app_name
        self._prefix: str = replica._route_prefix if replica._route_prefix not in (None, "/") else ""

    def takes(self, scope: Scope) -> bool:
        """Whether the application answers this request, and not Serve itself."""
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        return path.startswith(self._prefix) and not path.startswith(SERVES_OWN)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.time()
        account = RequestAccount(request_id(_given_id(scope)))
        metadata = self._metadata(scope, account.request_id)
        self._enter(metadata)
        failure: BaseException | None = None
        inner = {**scope, "root_path": scope.get("root_path", "") + self._prefix, ACCOUNT: account}
        try:
            async with self._replica._start_request(metadata):
                await self._app(inner, receive, send)
        except BaseException as error:
            failure = error
            raise
        finally:
            status = str(account.status) if account.status else None
            took_ms = (time.time() - began) * 1000
            self._replica._record_errors_and_metrics(failure, status, took_ms, metadata)

    def _metadata(self, scope: Scope, named: str) -> RequestMetadata:
        return RequestMetadata(
            request_id=named,
            internal_request_id=named,
            route=self._replica._route_prefix or "",
            app_name=self._app_name,
            is_streaming=True,
            is_direct_ingress=True,
            _http_method=scope.get("method", "WS"),  # as Serve calls a WebSocket
            _client=format_client_address(scope.get("client")),
            _request_protocol=RequestProtocol.HTTP,
        )

    def _enter(self, metadata: RequestMetadata) -> None:
        """Serve's calls to other deployments, and its log lines, read this context."""
        context = ray.serve.context._RequestContext(
            route=metadata.route,
            request_id=metadata.request_id,
            _internal_request_id=metadata.internal_request_id,
            app_name=self._app_name,
            cancel_on_parent_request_cancel=True,
            _client=metadata._client,
        )
        ray.serve.context._serve_request_context.set(context)  # type: ignore[arg-type]


def direct_ingress(app: ASGIApp) -> DirectIngress | None:
    """``app``: what Serve gave its outermost middleware. None: Serve's wrapper has to serve the requests."""
    inner = getattr(app, "_app", None)  # Serve's own middleware, RequestIdMiddleware, is always the innermost
    replica = getattr(inner, "__self__", None)
    if getattr(inner, "__name__", "") != "_direct_ingress_asgi":
        return None
    if any(not hasattr(replica, name) for name in NEEDED) or not _is_plain(replica):
        return None
    return DirectIngress(replica)


def _is_plain(replica: Any) -> bool:
    return (
        replica._user_callable_asgi_app is not None
        and not getattr(replica._user_callable_wrapper, "_run_user_code_in_separate_thread", True)
        and replica._http_options is not None
        and replica._http_options.request_timeout_s is None
        and replica.max_queued_requests == -1
        and not is_tracing_enabled()
    )


def _given_id(scope: Scope) -> str | None:
    return next(
        (value.decode("latin-1") for name, value in scope["headers"] if name == b"x-request-id"), None
    )
