"""Which requests break members. A request that broke several members is refused for a while.

A member that dies breaks every request it was answering, and nearly all of them are innocent. So a single
*break* proves nothing: all requests that break at a member before it answers again form one *incident* and
share one strike. If some of them had received no byte yet, only those share it: a request that kills an
engine does so when it begins. A body is refused when its shares, from at least two members, add up to more
than one strike. Breaking two members alone makes two strikes; two bodies that break both members together
have one each, which is not enough. A body that some member answered completely is cleared, also of the
incidents of the next while: among many clients that ask the same, one may stand alone at the death of a
member, and another one at the next.

No clock: callers pass ``now`` (monotonic seconds).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from hashlib import blake2b

SPAN_S = 1.0
"""A break this soon after another belongs to the same incident, even if the member answered in between: bytes
that the dead member had sent can still be read that late."""

LEAST_MEMBERS = 2
ENOUGH = 1.0
"""Strikes; a body with more than this is refused."""

MOST_INCIDENTS = 256
MOST_CLEARED = 4096
"""Bodies that were answered while an incident is remembered; the oldest are forgotten."""

MOST_NAMED = 64
"""Requests of an incident that are remembered individually; further ones are only counted. A share among this
many is next to nothing."""


def body_key(tenant: str, path: str, body: bytes) -> bytes:
    """The key of a request. It depends on the tenant, so one tenant's body cannot refuse or clear
    another's."""
    names = f"{tenant}\n{path}\n".encode()
    return blake2b(body, digest_size=16, key=blake2b(names, digest_size=32).digest()).digest()


@dataclass(slots=True)
class Suspects:
    """The bodies of an incident by key, and their number."""

    named: set[bytes] = field(default_factory=set)
    others: int = 0

    @property
    def count(self) -> int:
        return len(self.named) + self.others

    def add(self, body: bytes) -> bool:
        """Returns whether the body is new here."""
        if body in self.named:
            return False
        if len(self.named) < MOST_NAMED:
            self.named.add(body)
        else:
            self.others += 1
        return True


@dataclass(slots=True, eq=False)
class Incident:
    """One member's breaks. ``begun``: bodies whose answer had begun; ``unbegun``: those without a byte.
    ``bodies``: how many broke, also those that were cleared later."""

    member: str
    last_at: float
    begun: Suspects = field(default_factory=Suspects)
    unbegun: Suspects = field(default_factory=Suspects)
    bodies: int = 0

    @property
    def is_lonely(self) -> bool:
        """Only one body broke, as far as is known now, and no member has answered it completely since."""
        return self.bodies == 1 and self.begun.count + self.unbegun.count == 1

    def share(self, body: bytes) -> float:
        """The body's part of the strike, from 0 to 1."""
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
        self._cleared: dict[bytes, float] = {}

    @property
    def is_empty(self) -> bool:
        """No member broke recently: there is nothing to check or record."""
        return not self._incidents

    def broke(self, body: bytes, member: str, now: float, *, begun: bool) -> Incident:
        """A member's connection ended, or it answered 500. ``begun``: part of the answer had arrived."""
        self._forget(now)
        incident = self._open.get(member)
        if incident is None:
            incident = self._open[member] = Incident(member, now)
            self._incidents.append(incident)
        incident.bodies += (incident.begun if begun else incident.unbegun).add(body)
        incident.last_at = now
        if body in self._cleared:
            incident.clear(body)
        return incident

    def answered(self, member: str, now: float) -> None:
        """The member answers again: a later break is a new incident."""
        incident = self._open.get(member)
        if incident is not None and now > incident.last_at + SPAN_S:
            del self._open[member]

    def served(self, body: bytes, now: float) -> None:
        """A member answered the body completely."""
        self._cleared.pop(body, None)
        self._cleared[body] = now
        if len(self._cleared) > MOST_CLEARED:
            del self._cleared[next(iter(self._cleared))]
        for incident in self._incidents:
            incident.clear(body)

    def refused_for_s(self, body: bytes, now: float) -> float:
        """Seconds for which the body is still refused; 0 if it is not."""
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
        while self._cleared and (oldest := next(iter(self._cleared.items())))[1] + self._for_s <= now:
            del self._cleared[oldest[0]]
