"""The priority that a request asks for."""

from __future__ import annotations

from collections.abc import Mapping

from serve_app.request.headers import PRIORITY

PRIORITY_FIELD = "priority"
FIRST_PRIORITY = 0
DEFAULT_PRIORITY = 5
LAST_PRIORITY = 9


def request_priority(headers: Mapping[str, str], best: int = FIRST_PRIORITY) -> int:
    """The priority: 0 goes first, 9 last, 5 if the request names none. It is never better than ``best``, the
    client's own limit.

    Raises:
        BadRequest: the header is not a digit.
    """
    return max(PRIORITY.read(headers, DEFAULT_PRIORITY), best)


def body_priority(fields: Mapping[str, object]) -> int | None:
    """The value that vLLM would read from the body's ``priority`` (there too, lower goes first); ``None`` if
    there is none or vLLM would refuse it."""
    value = fields.get(PRIORITY_FIELD)
    if not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
        return int(number) if number.is_integer() else None
    except (ValueError, OverflowError):
        return None
