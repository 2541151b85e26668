"""Parts of `teams`: a budget that many streams use at once, and limits per minute under far more load."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from benchmarks.load import Client, Sample, open_loop, run_fast
from benchmarks.options import Options
from benchmarks.peers import Endpoint
from benchmarks.table import Figure, at_least, at_most
from benchmarks.team_load import application, chat, limit, new_key, until_refused, used

GATEWAYS, STREAMS = 4, 64
BUDGET, QUICK_BUDGET = 400_000, 40_000
ASKED, GENERATED, ITL_MS = 64, 48, 10.0
"""The tokens that a request may use, the tokens that its answer has, and the time of each token."""

REFUSED_S = 5.0
"""Far longer than an answer takes: by then no reservation is returned any more."""

REQUESTS, TOKENS = 300, 15_000
"""The limits per minute."""

TIMES, MINUTE_S = 20, 60.0
LOAD_S, QUICK_LOAD_S = 180.0, 20.0
EDGE_S = 5.0
"""The last seconds of the load are left out, because a fourth minute's quota could be used in them."""

PER_ANSWER = 25
"""The approximate number of tokens of a request's prompt and answer."""


def budget(options: Options) -> list[Figure]:
    """Figures of a day's tokens, of which streams at all gateways want more than there are."""
    wanted = QUICK_BUDGET if options.quick else BUDGET
    shares = []
    for _ in range(options.repeats):
        with application(GATEWAYS, tokens=GENERATED, itl_ms=ITL_MS) as endpoint:
            key = new_key(endpoint, "acme")["key"]
            limit(endpoint, "tenant:acme", tokens_per_day=wanted)
            samples = run_fast(spent(endpoint, key))
            shares.append(sum(used(each) for each in _answered(samples)) / wanted)
    name = f"a day's {wanted:,} tokens, {GATEWAYS} gateways × {STREAMS} streams"
    return [
        Figure(f"{name}: used of the budget", "×", tuple(shares), at_most(1.01)),
        Figure(f"{name}: served of the budget", "×", tuple(shares), at_least(0.99)),
    ]


async def spent(
    endpoint: Endpoint, key: str, streams: int = GATEWAYS * STREAMS, refused_s: float = REFUSED_S
) -> list[Sample]:
    """Send requests until all streams are refused."""
    numbers = count()
    async with Client(endpoint.url, limit_s=300.0) as client:
        return await until_refused(client, lambda: chat(key, next(numbers), ASKED), streams, refused_s)


def minute(options: Options) -> list[Figure]:
    """Figures of two tenants at once: one with limited requests, one with limited tokens."""
    seconds = QUICK_LOAD_S if options.quick else LOAD_S
    runs = [_loaded(seconds) for _ in range(options.repeats)]
    figures = []
    for place, (name, per_minute) in enumerate((("requests", REQUESTS), ("tokens", TOKENS))):
        taken = [[(each.sent_at, _amount(name, each)) for each in _answered(run[place])] for run in runs]
        shares = tuple(share(each, per_minute, seconds - EDGE_S) for each in taken)
        most = tuple(most_in_a_minute(each) / per_minute for each in taken)
        what = f"{per_minute:,} {name} per minute, {TIMES} × load"
        figures += [
            Figure(f"{what}: admitted in {seconds:g} s", "×", shares, at_most(1.02)),
            Figure(f"{what}: served in {seconds:g} s", "×", shares, at_least(0.98)),
            Figure(f"{what}: the most in any minute", "×", most, at_most(1.02)),
        ]
    failed = tuple(float(sum(each.failed for samples in run for each in samples)) for run in runs)
    return [*figures, Figure("by the minute: failed requests", "", failed, at_most(0))]


def _loaded(seconds: float) -> tuple[list[Sample], list[Sample]]:
    """Samples of the tenant with limited requests, and of the one with limited tokens."""
    with application(GATEWAYS, tokens=PER_ANSWER, itl_ms=ITL_MS) as endpoint:
        by_requests, by_tokens = (new_key(endpoint, tenant)["key"] for tenant in ("counted", "weighed"))
        limit(endpoint, "tenant:counted", requests_per_minute=REQUESTS)
        limit(endpoint, "tenant:weighed", tokens_per_minute=TOKENS)
        rates = {by_requests: TIMES * REQUESTS / MINUTE_S, by_tokens: TIMES * TOKENS / PER_ANSWER / MINUTE_S}
        arrivals = sorted(
            (
                (number / rate, key, number)
                for key, rate in rates.items()
                for number in range(int(seconds * rate))
            ),
        )
        requests = [(at, chat(key, number, PER_ANSWER, stream=False)) for at, key, number in arrivals]
        samples = run_fast(open_loop(endpoint.url, requests, limit_s=seconds + MINUTE_S))
    of = [
        [sample for sample, (_, key, _) in zip(samples, arrivals, strict=True) if key == each]
        for each in rates
    ]
    return of[0], of[1]


def _amount(name: str, sample: Sample) -> int:
    return 1 if name == "requests" else used(sample)


def _answered(samples: Sequence[Sample]) -> list[Sample]:
    """The samples that were not refused. An answer that was cut counts, because it used something."""
    return [each for each in samples if not each.refused]


def share(taken: Sequence[tuple[float, int]], per_minute: int, until_s: float) -> float:
    """What was taken until ``until_s``, as a share of what the minutes that have begun allow."""
    minutes = -(-until_s // MINUTE_S)
    return sum(amount for at, amount in taken if at <= until_s) / (minutes * per_minute)


def most_in_a_minute(taken: Sequence[tuple[float, int]]) -> int:
    """The most that was taken in any 60 seconds that begin when something is taken."""
    ordered = sorted(taken)
    most = end = within = 0
    for start, (at, amount) in enumerate(ordered):
        while end < len(ordered) and ordered[end][0] < at + MINUTE_S:
            within += ordered[end][1]
            end += 1
        most = max(most, within)
        assert end > start
        within -= amount
    return most
