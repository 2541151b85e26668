"""What a request says about failover."""

from __future__ import annotations

from collections.abc import Mapping

from serve_app.errors import BadRequest

FAILOVER_HEADER = "x-failover"


def wants_failover(headers: Mapping[str, str], default: bool) -> bool:
    """Whether another replica may take over; the request's own word goes before the settings'.

    Raises:
        BadRequest: the header is neither `on` nor `off`.
    """
    value = headers.get(FAILOVER_HEADER)
    if value is None:
        return default
    if value.strip().lower() not in ("on", "off"):
        raise BadRequest(
            f"Header `{FAILOVER_HEADER}` is {value[:40]!r}; expected 'on' or 'off'.",
            param=FAILOVER_HEADER,
            code="invalid_header",
        )
    return value.strip().lower() == "on"
