"""HAProxy's own errors in OpenAI's shape: it answers these where no gateway sees the request."""

from __future__ import annotations

from serve_app.errors import (
    BadRequest,
    Forbidden,
    HeaderTimeout,
    NoReplica,
    NotFound,
    PromptlyError,
    UpstreamFailed,
)
from serve_app.settings.proxy import ProxySettings

REASONS = {
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    408: "Request Timeout",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}


def error_pages(settings: ProxySettings) -> dict[int, PromptlyError]:
    """Each status that HAProxy answers by itself, and the error that stands for it."""
    return {
        400: BadRequest(
            "The request is no valid HTTP, or its line and headers are larger than 15 kB together.",
            code="malformed_http",
        ),
        403: Forbidden("The proxy refuses this request.", code="refused"),
        404: NotFound("No application is there.", code="not_found"),
        408: HeaderTimeout(settings.header_timeout_s),
        500: PromptlyError("The proxy failed.", code="internal_error"),
        502: UpstreamFailed("The gateway broke before it had answered.", code="gateway_failed"),
        503: NoReplica("No gateway is there now.", code="no_gateway"),
        504: UpstreamFailed("The gateway did not answer in time.", code="gateway_timeout"),
    }


def http_text(status: int, error: PromptlyError) -> bytes:
    """A whole HTTP response as HAProxy's ``errorfile`` wants it."""
    body = error.body()
    headers = {
        "content-type": "application/json",
        "content-length": str(len(body)),
        "cache-control": "no-store",
        "connection": "close",
        **error.headers,
    }
    lines = [f"HTTP/1.1 {status} {REASONS[status]}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body
