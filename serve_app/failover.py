"""What a request says about failover, and which members have failed it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from serve_app.errors import BadRequest

FAILOVER_HEADER = "x-failover"


@dataclass(slots=True)
class Tried:
    """Members that failed one request: never asked again. One that refused the connection was sent nothing,
    so it does not count among the ``failures`` that are bounded."""

    names: set[str] = field(default_factory=set)
    failures: int = 0

    def failed(self, name: str) -> None:
        self.names.add(name)
        self.failures += 1

    def refused(self, name: str) -> None:
        self.names.add(name)

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def __bool__(self) -> bool:
        return bool(self.names)


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
