"""HAProxy's own errors, for requests that no gateway receives. HAProxy has one text for all paths, so it is
OpenAI's body with Anthropic's outer ``"type": "error"``: clients of both find what they look for."""

from __future__ import annotations

import msgspec

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
    """The error for each status that HAProxy answers itself."""
    return {
        400: BadRequest(
            "The request is not valid HTTP, its line and headers together exceed 15 kB, or the client "
            "closed its sending side before it was answered, which counts as leaving.",
            code="malformed_http",
        ),
        403: Forbidden("The proxy refuses this request.", code="refused"),
        404: NotFound("There is no application at this path.", code="not_found"),
        408: HeaderTimeout(settings.header_timeout_s),
        500: PromptlyError("The proxy failed.", code="internal_error"),
        502: UpstreamFailed("The gateway failed before it answered.", code="gateway_failed"),
        503: NoReplica("No gateway is available now.", code="no_gateway"),
        504: UpstreamFailed("The gateway did not answer in time.", code="gateway_timeout"),
    }


def http_text(status: int, error: PromptlyError) -> bytes:
    """A complete HTTP response in the format of HAProxy's ``errorfile``."""
    body = msgspec.json.encode({"type": "error", "error": error.details})
    headers = {
        "content-type": "application/json",
        "content-length": str(len(body)),
        "cache-control": "no-store",
        "connection": "close",
        **error.headers,
    }
    lines = [f"HTTP/1.1 {status} {REASONS[status]}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body
