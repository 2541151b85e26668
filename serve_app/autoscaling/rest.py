"""Decides when an engine falls asleep and wakes: as the policy orders, and only while it is idle."""

from __future__ import annotations

from enum import Enum


class Rest(Enum):
    """What an engine does next."""

    NOTHING = "nothing"
    SLEEP = "sleep"
    WAKE = "wake"


class Sleeper:
    """Decides when one engine falls asleep and when it wakes.

    When it is ordered to sleep, the engine is *withdrawn* at once: it reports that it takes no new requests,
    which gateways see with their next poll. It falls asleep when nothing has run for ``quiet_s``, so that a
    gateway that has not polled yet still finds it awake. A request that arrives later still wakes it and is
    answered.
    """

    def __init__(self, quiet_s: float) -> None:
        self._quiet_s = quiet_s
        self._quiet_since: float | None = None
        self._is_asleep = False
        self._should_sleep = False

    @property
    def is_asleep(self) -> bool:
        """It sleeps, or is still waking up."""
        return self._is_asleep

    @property
    def is_withdrawn(self) -> bool:
        """It takes no new requests: it sleeps, is about to, or is still waking up."""
        return self._should_sleep or self._is_asleep

    def next(self, should_sleep: bool, busy: bool, now: float) -> Rest:
        """The next action. ``should_sleep``: the policy wants it asleep; ``busy``: it has requests; ``now``:
        seconds. When the action is done, the caller calls ``slept`` or ``woke``."""
        self._should_sleep = should_sleep
        if self._is_asleep:
            return Rest.WAKE if busy or not should_sleep else Rest.NOTHING
        if busy or not should_sleep:
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
