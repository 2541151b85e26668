"""A stored response whose status changes without an engine: it failed, or was cancelled."""

from __future__ import annotations

from typing import Any

import msgspec

LEASE_S = 10.0
"""A gateway that generates a background response and has not reported for so long is gone; gateways report
every second."""


def with_status(response: bytes, status: str, error: dict[str, Any] | None = None) -> bytes:
    """``error``: code and message."""
    fields = msgspec.json.decode(response)
    fields |= {"status": status, "error": error}
    return msgspec.json.encode(fields)


NOT_STORED = {"code": "server_error", "message": "The response could not be stored when it ended: ask again."}

OWNER_GONE = {
    "code": "server_error",
    "message": "The gateway that generated this response is gone: ask again.",
}
