"""Header rules for every path."""

from __future__ import annotations

from collections.abc import Iterable

from serve_app.errors import BadRequest


def require_utf8(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Raises: BadRequest: a header value is not valid UTF-8; the error names the first such header."""
    for name, value in headers:
        try:
            value.decode()
        except UnicodeDecodeError:
            shown = name.decode("latin-1")
            raise BadRequest(
                f"Header `{shown}` is not valid UTF-8.", param=shown, code="invalid_header"
            ) from None
