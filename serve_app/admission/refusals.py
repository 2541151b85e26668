"""When a refused request is told so.

Clients that are refused in one moment come back in one moment, and whoever asks then waits behind all of
them. So the refusals of one tenant are sent one after another: the first at once, each later one ``EVERY_S``
after the one before. What comes back is then spread, too, whatever the clients make of ``Retry-After``."""

from __future__ import annotations

from collections import OrderedDict

EVERY_S = 0.005
"""A refusal takes the gateway about a millisecond: a tenant's refusals leave it most of its time."""

MOST_S = 1.0
"""No refusal waits longer."""

MOST_TENANTS = 4096


class RefusalPace:
    """One gateway's. Times are in seconds of any clock that never goes back."""

    def __init__(self) -> None:
        self._next: OrderedDict[str, float] = OrderedDict()

    def pause_s(self, tenant: str, now: float) -> float:
        """How long this refusal of the tenant waits."""
        at = min(max(now, self._next.pop(tenant, now)), now + MOST_S)
        self._next[tenant] = at + EVERY_S
        while len(self._next) > MOST_TENANTS:
            self._next.popitem(last=False)
        return at - now
