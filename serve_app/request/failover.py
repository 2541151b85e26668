"""A request's failover option, and the members that have failed it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from serve_app.quarantine import Incident
from serve_app.request.headers import FAILOVER

MOST_BROKEN = 2
"""Members that one request may break: a second break suggests that the request itself is the cause."""


@dataclass(slots=True)
class Tried:
    """Members that failed one request; they are not tried again. A member that refused the connection
    received nothing, so it does not count towards the attempts.

    Members that broke while they handled the request have a lower limit, because the request may be the
    cause. A stream that was cut together with other requests' streams is blamed on the member, not on the
    request."""

    names: set[str] = field(default_factory=set)
    failures: int = 0
    _broken_before_a_byte: int = 0
    _cut: list[Incident] = field(default_factory=list)

    def failed(self, name: str) -> None:
        self.names.add(name)
        self.failures += 1

    def refused(self, name: str) -> None:
        self.names.add(name)

    def broke(self, incident: Incident, *, begun: bool) -> None:
        """A member broke. ``begun``: part of the answer had arrived."""
        if begun:
            self._cut.append(incident)
        else:
            self._broken_before_a_byte += 1

    @property
    def broken(self) -> int:
        """Members that broke because of this request, as far as is known now."""
        return self._broken_before_a_byte + sum(incident.is_lonely for incident in self._cut)

    @property
    def may_be_innocent(self) -> bool:
        """The limit on broken members is reached, but by a cut stream that stands alone only so far. Each
        stream of a dead member notices the death at a moment of its own."""
        lonely = any(incident.is_lonely for incident in self._cut)
        return lonely and self.broken >= MOST_BROKEN > self._broken_before_a_byte

    def is_spent(self, max_attempts: int) -> bool:
        """No further member may be tried."""
        return self.failures >= max_attempts or self.broken >= MOST_BROKEN

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def __bool__(self) -> bool:
        return bool(self.names)


def wants_failover(headers: Mapping[str, str], default: bool) -> bool:
    """Whether another member may take over; the request's header overrides the settings' default.

    Raises:
        BadRequest: the header is neither `on` nor `off`.
    """
    return FAILOVER.read(headers, default)
