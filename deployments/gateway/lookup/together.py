"""What this gateway shares with the other gateways of its application: requests in flight, limits, and where
prompts were sent."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from secrets import token_hex

from deployments.gateway.lookup.beginnings import KeptBeginnings
from deployments.gateway.lookup.elsewhere import Elsewhere
from deployments.gateway.lookup.in_flight import InFlightRequests
from deployments.gateway.lookup.memory import Memory
from deployments.gateway.lookup.shards import CacheShards
from deployments.gateway.others.others import AskGateways, GatewayReport, Others
from serve_app.cache.shards import Shards
from serve_app.errors import SettingsError
from serve_app.gateways.shares import Share
from serve_app.routing.sent_prompts import SentPrompt, SentPrompts

logger = logging.getLogger("ray.serve")


class Together:
    """``ask`` asks all gateways for their reports; ``None``: there is only this one, and nothing is shared.
    ``expected``: how many there are at the start. ``host``: where the others reach this one."""

    def __init__(self, ask: AskGateways | None, expected: int, host: str) -> None:
        self.share = Share(token_hex(8), 1 if ask is None else expected)
        self.sent: SentPrompts | None = None if ask is None else SentPrompts()
        self.elsewhere: Elsewhere | None = None
        self.beginnings: KeptBeginnings | None = None
        self._ask = ask
        self._host = host
        self._others: Others | None = None

    def share_requests(
        self, in_flight: InFlightRequests, memory: Memory, ports: range, shards: Shards
    ) -> None:
        """Others may join these, at one of ``ports``, and get from ``memory`` what has ended. Each request
        is announced to its shard of the cache."""
        if self._ask is None:
            return
        try:
            self.elsewhere = Elsewhere(in_flight, memory, self._host, ports, shards)
        except SettingsError as error:
            logger.warning("requests are not shared with other gateways: %s", error)

    def keep_beginnings(self, in_flight: InFlightRequests, shards: CacheShards) -> None:
        """What these have said outlasts this gateway."""
        if self.elsewhere is not None:
            self.beginnings = KeptBeginnings(in_flight, shards, self.share.gateway)

    def begin(
        self,
        demand: Callable[[], int],
        running: Callable[[], int],
        learned: Callable[[], None],
        heard: Callable[[Sequence[SentPrompt]], None],
    ) -> None:
        """See ``Others``."""
        if self._ask is None or self.sent is None:
            return
        address = None if self.elsewhere is None else self.elsewhere.address
        self._others = Others(
            self._ask,
            address,
            self.share,
            sent=self.sent,
            demand=demand,
            running=running,
            learned=learned,
            heard=heard,
        )
        if self.elsewhere is not None:
            self.elsewhere.introduce(self.share.gateway, self._others.address_of)

    def report(self) -> GatewayReport | None:
        """The report that another gateway asks for; ``None`` where this one is alone."""
        return None if self._others is None else self._others.report()

    async def look(self) -> None:
        """A round now."""
        if self._others is not None:
            await self._others.look()

    async def close(self) -> None:
        if self._others is not None:
            await self._others.close()
        if self.beginnings is not None:
            await self.beginnings.close()
        if self.elsewhere is not None:
            await self.elsewhere.close()
