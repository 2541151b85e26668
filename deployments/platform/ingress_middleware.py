"""A middleware in front of Ray Serve's own handling of a request.

Serve 2.60 loads it where the variable ``RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH`` is
``deployments.platform.ingress_middleware:middlewares`` for whatever starts it (``make serve`` sets it).
Without it everything works, but:

- Serve decodes some headers (``x-request-id``, session and multiplexing ids, ``traceparent``) before the
  application sees the request, and answers 500 to bytes that are not UTF-8. Watch for the day it answers 400.
- Serve watches every client for a disconnect with two tasks, although the gateway watches too
  (``Exchange.run_while_connected``): two rounds of the event loop before a burst's requests reach an engine.
- Serve wraps every request and every chunk (see ``direct_ingress``).
"""

from __future__ import annotations

from uuid import uuid4

from starlette.middleware import Middleware
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from deployments.platform.direct_ingress import DirectIngress, direct_ingress
from deployments.platform.door_socket import open_doors
from deployments.platform.http_protocol import mend_http
from deployments.platform.websocket_protocol import bound_websockets
from serve_app.dialects import dialect_of
from serve_app.errors import BadRequest
from serve_app.request.headers import require_utf8

WE_WATCH = (b"x-request-disconnect-disabled", b"?1")
"""Serve's header for "the application detects client disconnects itself"."""


class IngressMiddleware:
    """Hands a request straight to the application where that is possible. Where it is not: answers 400 to a
    header value that is not UTF-8, and turns off Serve's own watch for client disconnects."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._direct: DirectIngress | None = None
        self._has_looked = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        direct = self._find_direct()
        if direct is not None and direct.takes(scope):
            await direct(scope, receive, send)
            return
        if scope["type"] == "websocket":  # Serve reads ahead of the application there, without a bound
            await self._app(scope, receive, send)
            return
        await self._through_serve(scope, receive, send)

    def _find_direct(self) -> DirectIngress | None:
        """Called at the first request, not before: Serve makes its middlewares while the replica still
        starts."""
        if not self._has_looked:
            self._direct = direct_ingress(self._app)
            self._has_looked = True
        return self._direct

    async def _through_serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            require_utf8(scope["headers"])
        except BadRequest as error:
            path = scope["path"].removeprefix(scope.get("root_path", ""))
            body = dialect_of(path).body(error, uuid4().hex)
            response = Response(body, error.status, media_type="application/json")
            await response(scope, receive, send)
            return
        headers = [header for header in scope["headers"] if header[0] != WE_WATCH[0]]
        await self._app({**scope, "headers": [*headers, WE_WATCH]}, receive, send)


def middlewares() -> list[Middleware]:
    """Serve's callback, in every process that speaks HTTP to clients: the middlewares to install."""
    mend_http()
    bound_websockets()
    open_doors()
    return [Middleware(IngressMiddleware)]
