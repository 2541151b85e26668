"""A part of `teams`: processes are killed in turn (SIGKILL) while many requests use up a budget."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from benchmarks.kills import Part, back, kill
from benchmarks.load import Client, Sample, run_fast
from benchmarks.options import Options
from benchmarks.peers import Endpoint
from benchmarks.table import Figure, at_most
from benchmarks.team_load import administer, application, chat, limit, new_key, used
from deployments.gateway.accounts.gateway_quotas import PERIOD_S
from serve_app.quotas.book import AHEAD

GATEWAYS, STREAMS = 2, 64
REQUESTS, QUICK_REQUESTS = 10_000, 600
TOKENS, ITL_MS = 20, 10.0
PER_REQUEST = 25
"""The approximate number of tokens of a prompt and its answer."""

BUDGET_SHARE = 0.9
"""The share of all requests that fits into the budget."""

KILLED_AT = (0.15, 0.3, 0.45, 0.6)
"""The shares of all requests that are answered before each kill."""

PARTS = (
    Part("one gateway of two", "Gateway", first_only=True),
    Part("the accounts' owner", "Accounts"),
    Part("controller", "ServeController"),
    Part("HAProxy", "haproxy"),
)
AGAIN_S, SETTLE_S = 0.05, 5.0


@dataclass(frozen=True)
class Outcome:
    """The tokens that clients got (``delivered``), that usage counted, and that the budget allows.
    ``seconds`` is the length of the run."""

    delivered: int
    counted: int
    budget: int
    seconds: float
    broken: int

    @property
    def per_s(self) -> float:
        return self.delivered / self.seconds

    @property
    def lost_s(self) -> float:
        """The usage that was lost, in seconds of the whole traffic."""
        return max(0, self.delivered - self.counted) / self.per_s

    @property
    def over_leases(self) -> float:
        """By how many leases the budget was exceeded. A lease covers the traffic of ``AHEAD`` periods."""
        return max(0, self.delivered - self.budget) / (self.per_s * AHEAD * PERIOD_S)


def kills(options: Options) -> list[Figure]:
    requests = QUICK_REQUESTS if options.quick else REQUESTS
    return figures_of([_killed(requests) for _ in range(options.repeats)], requests)


def figures_of(found: Sequence[Outcome], requests: int) -> list[Figure]:
    name = f"{', '.join(part.name for part in PARTS)} killed during {requests:,} requests"
    over = tuple(each.over_leases for each in found)
    return [
        Figure(f"{name}: usage lost", "s of traffic", tuple(each.lost_s for each in found), at_most(1)),
        Figure(f"{name}: budget exceeded by", "leases", over, at_most(1)),
        Figure("delivered of the budget", "×", tuple(each.delivered / each.budget for each in found)),
        Figure("counted of what was delivered", "×", tuple(each.counted / each.delivered for each in found)),
        Figure("requests that broke", "", tuple(float(each.broken) for each in found)),
    ]


def _killed(requests: int) -> Outcome:
    budget = int(BUDGET_SHARE * requests * PER_REQUEST)
    with application(GATEWAYS, tokens=TOKENS, itl_ms=ITL_MS) as endpoint:
        key = new_key(endpoint, "acme")["key"]
        limit(endpoint, "tenant:acme", tokens_per_day=budget)
        samples = run_fast(_under_kills(endpoint, key, requests))
        time.sleep(SETTLE_S)
        delivered = [each for each in samples if not each.refused]
        return Outcome(
            delivered=sum(map(used, delivered)),
            counted=counted(endpoint, "acme"),
            budget=budget,
            seconds=max(each.ended_at for each in delivered),
            broken=sum(each.failed for each in samples),
        )


def counted(endpoint: Endpoint, tenant: str) -> int:
    """A tenant's tokens as usage counts them."""
    page = administer(endpoint, f"/admin/usage?tenant={tenant}&by=tenant")
    return sum(row["tokens_in"] + row["tokens_out"] for row in page["usage"])


async def _under_kills(endpoint: Endpoint, key: str, requests: int) -> list[Sample]:
    numbers, samples = count(), []
    progress = asyncio.Condition()

    async def stream(client: Client) -> None:
        while (number := next(numbers)) < requests:
            sample = await client.send(chat(key, number, TOKENS))
            samples.append(sample)
            async with progress:
                progress.notify_all()
            if not sample.ok:
                await asyncio.sleep(AGAIN_S)

    async def killing() -> None:
        for part, share in zip(PARTS, KILLED_AT, strict=True):
            async with progress:
                await progress.wait_for(lambda share=share: len(samples) >= share * requests)  # type: ignore[misc]
            kill(endpoint, part)
            await back(endpoint, part)

    async with Client(endpoint.url, limit_s=500.0) as client:
        killer = asyncio.ensure_future(killing())
        await asyncio.gather(*(stream(client) for _ in range(STREAMS)))
        await killer
    return samples
