"""A middleware in front of Ray Serve's own header parsing.

Serve 2.60 decodes some headers (``x-request-id``, session and multiplexing ids, ``traceparent``) before
the application sees the request, and answers 500 to bytes that are no UTF-8. Serve loads
this where ``RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH=deployments.header_guard:middlewares`` is in the
environment of whatever starts it (``make serve`` sets it). Watch: the day Serve answers 400 itself,
this file can go.
"""

from __future__ import annotations

from starlette.middleware import Middleware
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from serve_app.errors import BadRequest
from serve_app.headers import require_utf8


class HeaderGuard:
    """Answers 400 to a header value that is no UTF-8."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            require_utf8(scope.get("headers", ()))
        except BadRequest as error:
            response = Response(error.body(), error.status, media_type="application/json")
            await response(scope, receive, send)
            return
        await self._app(scope, receive, send)


def middlewares() -> list[Middleware]:
    """What Serve's callback wants."""
    return [Middleware(HeaderGuard)]
