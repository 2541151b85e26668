"""Are the percentiles of ``/admin/latency`` those that clients see?

Requests arrive at random times, and now and then there are more than the scripted engine has slots, so that
times differ. The load generator's own percentiles are the truth; its times include the way to the gateway and
back.
"""

from __future__ import annotations

import asyncio
from secrets import token_hex
from typing import Any

import aiohttp

from benchmarks.engines import scripted_process
from benchmarks.layer import MODEL, settings_for
from benchmarks.load import Sample, chat_request, open_loop, percentile, poisson, run_fast
from benchmarks.options import Options
from benchmarks.peers import promptly
from benchmarks.table import Figure, at_most, write_report

REQUESTS, QUICK_REQUESTS, RATE_PER_S = 1200, 60, 30.0
TOKENS, ITL_MS, FIRST_TOKEN_MS, SLOTS = 20, 20.0, 150.0, 18
PERCENTS = (50, 90, 95, 99)
MOST_OFF_PERCENT = 2.0


async def shown(url: str, token: str) -> dict[str, Any]:
    """The gateway's figures of all requests answered in the last five minutes."""
    headers = {"authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(url, headers=headers) as http, http.get("/admin/latency") as response:
        response.raise_for_status()
        found: dict[str, Any] = (await response.json())["windows"]["5m"]["models"][MODEL]["outcomes"]["all"]
        return found


def client_ms(samples: list[Sample]) -> dict[str, list[float]]:
    """Raises: RuntimeError: a request failed."""
    if not all(sample.ok for sample in samples):
        raise RuntimeError(f"failed: {next(sample.error for sample in samples if not sample.ok)}")
    return {
        "ttft": [sample.ttft_s * 1000 for sample in samples if sample.ttft_s is not None],
        "e2e": [(sample.ended_at - sample.sent_at) * 1000 for sample in samples],
    }


def off_percent(clients: dict[str, list[float]], gateway: dict[str, Any]) -> dict[tuple[str, int], float]:
    """How far each of the gateway's percentiles is from that of the clients."""
    return {
        (measure, percent): abs(gateway[measure][f"p{percent}"] / percentile(values, percent) - 1) * 100
        for measure, values in clients.items()
        for percent in PERCENTS
    }


def one_run(requests: int, seed: int) -> dict[tuple[str, int], float]:
    token = token_hex(16)
    asked = [chat_request(MODEL, f"Question {seed} {number}.", TOKENS) for number in range(requests)]
    engine_settings = {"tokens": TOKENS, "itl_ms": ITL_MS, "first_token_ms": FIRST_TOKEN_MS, "slots": SLOTS}
    with (
        scripted_process(MODEL, **engine_settings) as engine,
        promptly(settings_for(engine.url, SLOTS), env={"PROMPTLY_ADMIN_TOKEN": token}) as endpoint,
    ):
        samples = run_fast(open_loop(endpoint.url, poisson(asked, RATE_PER_S, seed)))
        return off_percent(client_ms(samples), asyncio.run(shown(endpoint.url, token)))


def run(options: Options) -> list[Figure]:
    requests = QUICK_REQUESTS if options.quick else REQUESTS
    runs = [one_run(requests, seed) for seed in range(options.repeats)]
    figures = [
        Figure(
            f"/admin/latency against clients, {measure} p{percent}",
            "%",
            tuple(found[measure, percent] for found in runs),
            at_most(MOST_OFF_PERCENT),
        )
        for measure, percent in runs[0]
    ]
    about = {
        "engine": f"scripted, {SLOTS} slots, first token {FIRST_TOKEN_MS:g} ms, "
        f"{TOKENS} tokens, {ITL_MS:g} ms each",
        "load": f"{requests} streams at random times, {RATE_PER_S:g} a second",
    }
    write_report(options.out, "latency", figures, about=about)
    return figures
