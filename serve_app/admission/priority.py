"""How urgent a request says it is."""

from __future__ import annotations

import re
from collections.abc import Mapping

from serve_app.errors import BadRequest

PRIORITY_HEADER = "x-priority"
DEFAULT_PRIORITY = 5
PRIORITY = re.compile(r"[0-9]")


def request_priority(headers: Mapping[str, str]) -> int:
    """0 goes first, 9 last; 5 when the request does not say.

    Raises:
        BadRequest: the header is no digit.
    """
    value = headers.get(PRIORITY_HEADER)
    if value is None:
        return DEFAULT_PRIORITY
    if not PRIORITY.fullmatch(value.strip()):
        raise BadRequest(
            f"Header `{PRIORITY_HEADER}` is {value[:40]!r}; expected a digit from 0 (first) to 9 (last).",
            param=PRIORITY_HEADER,
            code="invalid_header",
        )
    return int(value)
