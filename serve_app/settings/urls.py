"""URLs in settings."""

from __future__ import annotations

from urllib.parse import urlsplit


def can_be_called(url: str) -> bool:
    """Whether it is an HTTP or HTTPS address of some host."""
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").encode("idna")  # as a look-up of the name does
        is_port = parts.port != 0
    except ValueError:  # also UnicodeError: an empty or too long label
        return False
    return parts.scheme in ("http", "https") and bool(host) and is_port and not any(map(str.isspace, url))
