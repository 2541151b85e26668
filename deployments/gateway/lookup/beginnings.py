"""This gateway's part in keeping the beginnings of answers: it tells the cache once a second what its streams
have said, and asks for what a stream had said whose gateway is lost.

No token passes here: a round reads the lists that streams keep anyway, for the case that their engine dies.
Only requests that others may join are told, so whoever may not share an answer gets no beginning of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from deployments.gateway.lookup.elsewhere import name_of
from deployments.gateway.lookup.in_flight import InFlightKey, InFlightRequests
from deployments.gateway.lookup.shards import CacheShards, Shard
from deployments.gateway.request.answer import Continuable
from serve_app.gateways.beginnings import Grown, Told, joined, pieces_of

ROUND_S = 1.0
CALL_TIMEOUT_S = 1.0
"""Of a call to the cache, for which a client may wait."""

TOLD_AT_ONCE = 128
"""Streams in one call: a millisecond of the event loop."""

logger = logging.getLogger("ray.serve")

Position = tuple[Sequence[bytes], int]
"""The list of a stream's pieces, and how many of them were told. Another list is another answer, or one that
has another engine now: it is told from its first piece."""


class KeptBeginnings:
    """Made inside a running event loop; ``close`` ends it. ``gateway``: this one's name."""

    def __init__(
        self, in_flight: InFlightRequests, shards: CacheShards, gateway: str, round_s: float = ROUND_S
    ) -> None:
        self._in_flight = in_flight
        self._shards = shards
        self._gateway = gateway
        self._round_s = round_s
        self._told: dict[bytes, Position] = {}
        self._rounds = asyncio.get_running_loop().create_task(self._follow())

    async def tell(self) -> None:
        """One round. What could not be told is told in the next one."""
        running = dict(self._running())
        names: dict[int, list[bytes]] = defaultdict(list)
        for name in running.keys() | self._told.keys():
            names[self._shards.of(name.hex()).number].append(name)
        for shard in self._shards:
            of_shard = names[shard.number]
            for start in range(0, len(of_shard), TOLD_AT_ONCE):
                await self._tell(shard, of_shard[start : start + TOLD_AT_ONCE], running)

    async def of(self, key: InFlightKey, gateway: str) -> list[list[int]]:
        """The tokens that a request's stream had at ``gateway``, in pieces; none are known where it is empty.
        They are given once."""
        name = name_of(key)
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                direct = self._shards.of(name.hex()).direct
                return pieces_of(await direct.call("beginning", name, gateway))
        except Exception as error:  # the request then begins anew
            logger.info("the beginning of a lost answer is not known: %s", type(error).__name__)
            return []

    async def close(self) -> None:
        self._rounds.cancel()
        await asyncio.gather(self._rounds, return_exceptions=True)

    def _running(self) -> Iterator[tuple[bytes, Position]]:
        """The streams that could go on elsewhere, as they are now."""
        for key, answer in self._in_flight.answers():
            pieces = answer.beginning if isinstance(answer, Continuable) else None
            if pieces:
                yield name_of(key), (pieces, len(pieces))

    async def _tell(self, shard: Shard, names: Sequence[bytes], running: Mapping[bytes, Position]) -> None:
        """Also if nothing has grown: this gateway lives."""
        grown, ended = [], []
        for name in names:
            if name not in running:
                ended.append(name)
                continue
            pieces, count = running[name]
            known, told = self._told.get(name, (pieces, 0))
            start = told if known is pieces else 0
            if count > start:
                grown.append(Grown(name, start, joined(pieces[start:count])))
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                await shard.direct.call("tell", Told(self._gateway, tuple(grown), tuple(ended)))
        except Exception as error:  # the cache is away, or of an older version
            logger.debug("what streams have said could not be told: %s", type(error).__name__)
            return
        for name in ended:
            del self._told[name]
        for each in grown:
            self._told[each.key] = running[each.key]

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(self._round_s)
            try:
                await self.tell()
            except Exception as error:  # the loop must survive any failure of a round
                logger.warning("what streams have said is not told: %s", type(error).__name__)
