"""When one engine falls asleep and when it wakes: it is told to, and nobody needs it. Pure, no clock."""

from __future__ import annotations

from enum import Enum


class Rest(Enum):
    """What an engine does next."""

    NOTHING = "nothing"
    SLEEP = "sleep"
    WAKE = "wake"


class Sleeper:
    """One engine's way to sleep and back.

    Told to sleep, it is *withdrawn* at once: it asks for no new requests, which gateways hear with their next
    poll. It sleeps when nothing has run for ``quiet_s``: until then a gateway that has not heard yet still
    finds it awake. A request that comes later all the same wakes it, and is answered.
    """

    def __init__(self, quiet_s: float) -> None:
        self._quiet_s = quiet_s
        self._quiet_since: float | None = None
        self._is_asleep = False
        self._is_told = False

    @property
    def is_asleep(self) -> bool:
        """It sleeps, or has not woken yet."""
        return self._is_asleep

    @property
    def is_withdrawn(self) -> bool:
        """It takes no new requests: it sleeps, or is about to, or has not woken yet."""
        return self._is_told or self._is_asleep

    def next(self, told: bool, busy: bool, now: float) -> Rest:
        """``told``: it is one of those that are to sleep; ``busy``: it has requests; ``now`` in seconds.
        After ``SLEEP`` and ``WAKE`` the caller says when that is done."""
        self._is_told = told
        if self._is_asleep:
            return Rest.WAKE if busy or not told else Rest.NOTHING
        if busy or not told:
            self._quiet_since = None
            return Rest.NOTHING
        if self._quiet_since is None:
            self._quiet_since = now
        return Rest.SLEEP if now - self._quiet_since >= self._quiet_s else Rest.NOTHING

    def slept(self) -> None:
        self._is_asleep = True
        self._quiet_since = None

    def woke(self) -> None:
        self._is_asleep = False
