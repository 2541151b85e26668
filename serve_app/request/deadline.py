"""How long a request may take."""

from __future__ import annotations

import re
from collections.abc import Mapping

from serve_app.errors import BadRequest

HEADER = "x-request-timeout-ms"
MILLISECONDS = re.compile(r"[0-9]{1,8}")
MAX_MS = 24 * 3600 * 1000


def request_timeout_s(headers: Mapping[str, str], default_s: float) -> float:
    """The request's own deadline in seconds, else the default.

    Raises:
        BadRequest: the header is not a number of milliseconds from 1 to one day.
    """
    value = headers.get(HEADER)
    if value is None:
        return default_s
    if not MILLISECONDS.fullmatch(value.strip()) or not 1 <= int(value) <= MAX_MS:
        raise BadRequest(
            f"Header `{HEADER}` is {value[:40]!r}; expected milliseconds from 1 to {MAX_MS}.",
            param=HEADER,
            code="invalid_header",
        )
    return int(value) / 1000
