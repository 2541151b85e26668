"""Which gateway is answering which request, so that identical requests at other gateways can join it.

The cache keeps this table, because a look-up goes there anyway: the same call asks and announces.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

JOIN_WINDOW_S = 600.0
"""How long a request can be joined at another gateway: the usual deadline (``limits.request_timeout_s``).
What ended sooner is taken out sooner."""

MOST_ANNOUNCED = 20_000
"""Requests in the table, some 200 bytes each; the oldest leave first. More are hardly in flight at once."""

MOST_ENDED = 64
"""Ends that one look-up tells."""


@dataclass(frozen=True, slots=True)
class Ended:
    """``gateway`` no longer answers the request ``key``; ``by`` does instead, if it is set: this gateway has
    asked an engine because the other one was lost."""

    key: bytes
    gateway: str
    by: str = ""


@dataclass(frozen=True, slots=True)
class Announced:
    """A look-up's request, which ``gateway`` answers if the cache does not. ``key`` names it and all that are
    identical, and holds its tenant's; ``ended``: what has ended since the last look-up."""

    key: bytes
    gateway: str
    ended: tuple[Ended, ...] = ()


class AnnouncedRequests:
    """Of one cache. No clock: callers pass ``now`` (monotonic seconds)."""

    def __init__(self) -> None:
        self._announced: OrderedDict[bytes, tuple[str, float]] = OrderedDict()  # the oldest first

    def __len__(self) -> int:
        return len(self._announced)

    def end(self, ended: Ended) -> None:
        known = self._announced.get(ended.key)
        if known is None or known[0] != ended.gateway:
            return
        by: str = getattr(ended, "by", "")  # a gateway of an older version, through a pickle, does not say it
        if by:
            self._announced[ended.key] = (by, known[1])
        else:
            del self._announced[ended.key]

    def meet(self, announced: Announced, now: float) -> str | None:
        """The other gateway that is answering an identical request. ``None``: there is none, and from now on
        it is this one. What ``announced`` says has ended is told with ``end`` before."""
        known = self._announced.pop(announced.key, None)
        if known is not None and known[0] != announced.gateway and now < known[1]:
            self._announced[announced.key] = known
            return known[0]
        self._announced[announced.key] = (announced.gateway, now + JOIN_WINDOW_S)
        while len(self._announced) > MOST_ANNOUNCED:
            self._announced.popitem(last=False)
        return None
