"""Which other gateways there are, where they can be reached, how much of each limit is this one's, and which
prompts they have sent where."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from serve_app.gateways.shares import Share
from serve_app.routing.sent_prompts import Round, SentPrompt, SentPrompts, prompts_of
from serve_app.wire.private_address import PrivateAddress

ROUND_S = 1.0
"""How often all gateways are asked: a share of a limit follows the demand within two rounds."""

FORGET_AFTER_S = 5.0
"""A gateway that does not answer counts, with its last report, for this long."""

HEARD_AT_ONCE = 16
"""Prompts in one turn of the event loop: a millisecond or two if they are long."""

logger = logging.getLogger("ray.serve")


@dataclass(frozen=True, slots=True)
class GatewayReport:
    """What a gateway tells the others. ``address``: where its requests can be joined; ``demand``: the
    requests that it answers, and those that it has refused since its last round; ``rounds``: the prompts that
    it has sent; ``running``: the requests that it answers."""

    gateway: str
    address: PrivateAddress | None
    demand: int
    rounds: tuple[Round, ...] = ()
    running: int = 0


AskGateways = Callable[[], Awaitable[Sequence[GatewayReport]]]
"""Asks all gateways, this one or not; those that do not answer in time are left out."""


class Others:
    """Made inside a running event loop; ``close`` ends it. ``share`` learns what each round brings, and then
    ``learned`` is called. ``sent``: the prompts to tell of; ``heard`` gets those of the others, each once."""

    def __init__(
        self,
        ask: AskGateways,
        address: PrivateAddress | None,
        share: Share,
        *,
        sent: SentPrompts,
        demand: Callable[[], int],
        running: Callable[[], int],
        learned: Callable[[], None],
        heard: Callable[[Sequence[SentPrompt]], None],
        round_s: float = ROUND_S,
    ) -> None:
        self.gateway = share.gateway
        self._share = share
        self._ask = ask
        self._address = address
        self._sent = sent
        self._heard = heard
        self._newest: dict[str, int] = {}  # of each gateway's rounds, the newest that was heard
        self._demand = demand
        self._running = running
        self._learned = learned
        self._round_s = round_s
        self._report = GatewayReport(self.gateway, address, 0)
        self._known: dict[str, tuple[GatewayReport, float]] = {}
        self._rounds = asyncio.get_running_loop().create_task(self._follow())

    def report(self) -> GatewayReport:
        """The report that another gateway asks for. It stays the same for a round, so all use the same
        numbers."""
        return self._report

    def address_of(self, gateway: str) -> PrivateAddress | None:
        """``None``: no such gateway is known (any more)."""
        known = self._known.get(gateway)
        return None if known is None else known[0].address

    async def look(self) -> None:
        """One round."""
        now = time.monotonic()
        self._report = GatewayReport(
            self.gateway, self._address, self._demand(), self._sent.close_round(), self._running()
        )
        for report in await self._ask():
            if report.gateway != self.gateway:
                self._known[report.gateway] = report, now
        self._known = {name: each for name, each in self._known.items() if each[1] > now - FORGET_AFTER_S}
        reports = [self._report, *(report for report, _ in self._known.values())]
        self._share.learn(
            {report.gateway: report.demand for report in reports},
            {report.gateway: report.running for report in reports},
        )
        self._learned()
        self._newest = {name: number for name, number in self._newest.items() if name in self._known}
        for report, _ in [*self._known.values()]:
            try:
                await self._hear(report)
            except Exception as error:  # prompts are hints: routing goes on without them
                logger.debug("what another gateway has sent is not known: %s", type(error).__name__)

    async def _hear(self, report: GatewayReport) -> None:
        """The rounds of a report that are new."""
        for told in report.rounds:
            if told[0] > self._newest.get(report.gateway, 0):
                self._newest[report.gateway] = told[0]
                prompts = prompts_of(told)
                for start in range(0, len(prompts), HEARD_AT_ONCE):
                    self._heard(prompts[start : start + HEARD_AT_ONCE])
                    await asyncio.sleep(0)  # streams go on in between

    async def close(self) -> None:
        self._rounds.cancel()
        await asyncio.gather(self._rounds, return_exceptions=True)

    async def _follow(self) -> None:
        while True:
            try:
                await self.look()
            except Exception as error:  # the loop must survive any failure of a round
                logger.warning("other gateways are not known: %s", type(error).__name__)
            await asyncio.sleep(self._round_s)
