"""Times as the command line writes them."""

from __future__ import annotations

from datetime import UTC, datetime


def utc_text(at: float) -> str:
    """Seconds since 1970 as ``2026-11-28T12:00:00Z``."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
