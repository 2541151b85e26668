"""Do limits hold over several gateways? The quotas of four gateways, and their owner with its file, run in
one process.

64 streams at each gateway ask for far more than a budget or a minute allows; a call to the owner takes a
millisecond more. The figure is the used share of the limit: above 1 the limit was exceeded, below 1 less was
served than allowed. The cost of a reservation is the time that a limit adds to a request while its gateway
has enough quota.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from benchmarks.options import Options
from benchmarks.table import Figure, at_least, at_most, write_report
from deployments.accounts.quota_owner import QuotaOwner
from deployments.accounts.store.registry import open_store
from deployments.gateway.accounts.gateway_quotas import GatewayQuotas
from serve_app.accounts.default_limits import table_of
from serve_app.errors import PromptlyError
from serve_app.quotas.limits import Bound, Limit
from serve_app.quotas.messages import LeaseCall, LeaseReply
from serve_app.settings import AccountSettings
from serve_app.usage.prices import Prices

GATEWAYS, STREAMS = 4, 64
CALL_S = 0.001
PAUSE_S = 0.02
SCOPE, TENANT = "tenant:acme", "acme"


@dataclass(frozen=True)
class Case:
    """Each request reserves ``reserved``, and uses at most ``used`` of it."""

    bound: Bound
    limit: int
    reserved: int
    used: int


CASES = {
    "a day's tokens": Case(Bound.TOKENS_DAY, 2_000_000, 300, 200),
    "tokens per minute": Case(Bound.TOKENS, 400_000, 300, 200),
    "requests per minute": Case(Bound.REQUESTS, 600, 1, 1),
}


@dataclass
class Outcome:
    used: int = 0
    reserving_s: list[float] = field(default_factory=list)


async def run_case(case: Case, seconds: float, streams: int = STREAMS) -> Outcome:
    """Measure what was used within ``seconds``."""
    with tempfile.TemporaryDirectory() as folder:
        settings = AccountSettings(path=str(Path(folder)), min_free_disk_bytes=0)
        store = open_store(settings)
        owner = QuotaOwner(store, settings)
        await owner.begin()
        limit = Limit(SCOPE, **{case.bound.value: case.limit})  # type: ignore[arg-type]  # one of its fields
        await owner.put(limit)

        async def lease(call: LeaseCall) -> LeaseReply:
            await asyncio.sleep(CALL_S)
            return owner.lease(call)

        gateways = []
        for _ in range(GATEWAYS):
            table = table_of(settings)
            table.put([limit])
            gateways.append(GatewayQuotas(lease, table, Prices({}), 0.0))
        outcome, until = Outcome(), time.monotonic() + seconds
        await asyncio.gather(
            *(_stream(each, case, until, outcome) for each in gateways for _ in range(streams))
        )
        for each in gateways:
            await each.stop()
        await owner.close()
        await store.close()
        return outcome


async def _stream(gateway: GatewayQuotas, case: Case, until: float, outcome: Outcome) -> None:
    rng = random.Random(outcome.used)
    while time.monotonic() < until:
        began = time.perf_counter()
        try:
            taken = await gateway.reserve([(gateway.book.purse(SCOPE, case.bound, TENANT), case.reserved)])
        except PromptlyError:
            await asyncio.sleep(PAUSE_S)
            continue
        outcome.reserving_s.append(time.perf_counter() - began)
        used = rng.randint((case.used + 1) // 2, case.used)
        outcome.used += used
        await asyncio.sleep(PAUSE_S)
        for each in taken:
            gateway.settle(each, used)


def run(options: Options) -> list[Figure]:
    seconds = 2.0 if options.quick else 20.0
    figures = []
    for name, case in CASES.items():
        found = [asyncio.run(run_case(case, seconds)) for _ in range(options.repeats)]
        shares = tuple(each.used / case.limit for each in found)
        waits = tuple(median(each.reserving_s) * 1000 for each in found)
        figures += [
            Figure(f"{name}: used of the limit", "×", shares, at_most(1.01)),
            Figure(f"{name}: served of the limit", "×", shares, at_least(0.99)),
            Figure(f"{name}: a reservation, p50", "ms", waits, at_most(0.2)),
        ]
    about = {"load": f"{GATEWAYS} gateways in one process, {STREAMS} streams at each"}
    write_report(options.out, "quotas", figures, about=about)
    return figures
