"""Which requests break members. One that several members broke on is refused for a while.

A member that dies takes every request down that it was answering, and nearly all of them are innocent. So a
*break* is no proof: all requests that broke at a member before it answered anybody again are one *incident*,
and share one strike. Those that had not been answered a byte yet share it alone, if there are any: what kills
an engine does so when it is begun. A body is refused when its shares, at two members at least, are more than
one strike. Alone at both it has two; one of two bodies that break both members together has one, which is not
enough. A body that some member answered to its end is cleared.

No clock: callers pass ``now`` (monotonic seconds).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from hashlib import blake2b

SPAN_S = 1.0
"""What breaks so soon after another is the same incident, even if something was answered in between: bytes
that the dead member had sent are read as late as that."""

LEAST_MEMBERS = 2
ENOUGH = 1.0
"""Strikes; a body with more is refused."""

MOST_INCIDENTS = 256
MOST_NAMED = 64
"""Requests of an incident that are remembered one by one; what came on top is counted. A share of so many is
next to nothing."""


def body_key(tenant: str, path: str, body: bytes) -> bytes:
    """Names a request: one tenant's body neither refuses nor clears another's."""
    names = f"{tenant}\n{path}\n".encode()
    return blake2b(body, digest_size=16, key=blake2b(names, digest_size=32).digest()).digest()


@dataclass(slots=True)
class Suspects:
    """Bodies by key, and how many there are."""

    named: set[bytes] = field(default_factory=set)
    others: int = 0

    @property
    def count(self) -> int:
        return len(self.named) + self.others

    def add(self, body: bytes) -> None:
        if body in self.named:
            return
        if len(self.named) < MOST_NAMED:
            self.named.add(body)
        else:
            self.others += 1


@dataclass(slots=True, eq=False)
class Incident:
    """One member's breaks. ``begun``: bodies that were being answered; ``unbegun``: those without a byte."""

    member: str
    last_at: float
    begun: Suspects = field(default_factory=Suspects)
    unbegun: Suspects = field(default_factory=Suspects)

    @property
    def is_lonely(self) -> bool:
        """One body broke, as far as is known by now."""
        return self.begun.count + self.unbegun.count <= 1

    def share(self, body: bytes) -> float:
        """Of the strike, from 0 to 1."""
        blamed = self.unbegun if self.unbegun.count else self.begun
        return 1 / blamed.count if body in blamed.named else 0.0

    def clear(self, body: bytes) -> None:
        self.begun.named.discard(body)
        self.unbegun.named.discard(body)


class Quarantine:
    """One gateway's incidents of the last ``for_s`` seconds."""

    def __init__(self, for_s: float) -> None:
        self._for_s = for_s
        self._incidents: deque[Incident] = deque(maxlen=MOST_INCIDENTS)
        self._open: dict[str, Incident] = {}

    @property
    def is_empty(self) -> bool:
        """No member broke lately: nothing has to be asked or told."""
        return not self._incidents

    def broke(self, body: bytes, member: str, now: float, *, begun: bool) -> Incident:
        """A member's connection ended, or it answered with 500. ``begun``: some of the answer had come."""
        self._forget(now)
        incident = self._open.get(member)
        if incident is None:
            incident = self._open[member] = Incident(member, now)
            self._incidents.append(incident)
        (incident.begun if begun else incident.unbegun).add(body)
        incident.last_at = now
        return incident

    def answered(self, member: str, now: float) -> None:
        """It answers again: what breaks from now on is another incident."""
        incident = self._open.get(member)
        if incident is not None and now > incident.last_at + SPAN_S:
            del self._open[member]

    def served(self, body: bytes) -> None:
        """A member answered it to its end."""
        for incident in self._incidents:
            incident.clear(body)

    def refused_for_s(self, body: bytes, now: float) -> float:
        """Seconds for which a body is refused from now on; 0 for one that is not."""
        self._forget(now)
        blamed = [incident for incident in self._incidents if incident.share(body)]
        strikes = sum(incident.share(body) for incident in blamed)
        if strikes <= ENOUGH or len({incident.member for incident in blamed}) < LEAST_MEMBERS:
            return 0.0
        return max(incident.last_at for incident in blamed) + self._for_s - now

    def _forget(self, now: float) -> None:
        while self._incidents and self._incidents[0].last_at + self._for_s <= now:
            self._incidents.popleft()
        if len(self._open) > len(self._incidents):
            kept = {id(incident) for incident in self._incidents}
            self._open = {name: each for name, each in self._open.items() if id(each) in kept}
