"""What a request's record costs, and whether its parts add up to the time that the client measured.

The cost is that of one finished request in the event loop: recording the timeline's steps, reading the end of
the stream, making and keeping the record; and, a moment later, the latency windows, the monitor and the log
line, without Ray's metrics. The parts are those that a stream reports at its end (``x-debug-timing: 1``).
They are compared with the clock of a client in another process, which keeps its connection.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from typing import Any

import aiohttp

from benchmarks.engines import scripted_engine
from benchmarks.layer import MODEL, settings_for
from benchmarks.load import percentile
from benchmarks.options import Options
from benchmarks.peers import promptly
from benchmarks.table import Figure, at_most, write_report
from deployments.gateway.monitoring.monitor import Monitor
from deployments.gateway.request.exchange import Exchange
from deployments.gateway.request.finished import Finished
from deployments.gateway.request.log import RequestLog
from serve_app.latency import LatencyWindows
from serve_app.monitoring.metrics import NoMeter
from serve_app.openai.usage import UsageFilter
from serve_app.recent.ring import Recent
from serve_app.settings.alerts import AlertSettings
from serve_app.settings.gateway import GatewaySettings

TOKENS, ITL_MS = 50, 10.0
ROUNDS, QUICK_ROUNDS, WARM_UP = 100, 5, 5
RECORDS, QUICK_RECORDS = 20_000, 500
STEPS = ("admit", "exact", "embed", "search", "queue", "route", "upstream-ttft", "upstream")
STEP = re.compile(rb"([a-z-]+);dur=([0-9.]+)")
PARTS = (b"overhead", b"upstream-ttft", b"upstream")
"""The parts do not overlap, and together they cover the whole time."""

END = (
    b'data: {"id":"c","choices":[],"usage":{"prompt_tokens":30,"completion_tokens":50,'
    b'"prompt_tokens_details":{"cached_tokens":16}},"metrics":{"time_to_first_token_ms":40.5,'
    b'"generation_time_ms":90.2,"queue_time_ms":2.0}}\n\n'
)
SCOPE: dict[str, Any] = {
    "type": "http",
    "method": "POST",
    "path": "/v1/chat/completions",
    "headers": [(b"x-request-id", b"a-request")],
}


async def _nothing(*_: Any) -> Any:
    """Replaces a server's ``receive`` and ``send``."""


def _one(finished: Finished) -> float:
    """The microseconds that all work to measure one request takes."""
    exchange = Exchange(SCOPE, _nothing, _nothing)
    exchange.response_headers |= {"x-cache": "miss", "x-served-by": "e0"}
    timeline, usage = exchange.timeline, UsageFilter()
    began = time.perf_counter_ns()
    for name in STEPS:
        with timeline.step(name):
            pass
    usage.feed(END)
    measured = exchange.facts.measured = usage.measured()
    assert measured.engine is not None, "the sample tells it"
    timeline.add_engine(measured.engine, streamed=True)
    finished(exchange)
    return (time.perf_counter_ns() - began) / 1000


async def cost_us(count: int) -> tuple[float, float]:
    """Microseconds of making a record (the median), and of everything that reads it later (the mean)."""
    logger = logging.getLogger("ray.serve")
    handler, level = logging.NullHandler(), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    monitor = Monitor([MODEL], AlertSettings(), NoMeter())
    at_once = [Recent(GatewaySettings().recent_requests, [SCOPE["path"]]).take]
    finished = Finished(at_once, [LatencyWindows().take, monitor.take, RequestLog("text", 10.0)])
    try:
        records = [_one(finished) for _ in range(count)]
        began = time.perf_counter_ns()
        finished.close()
        later = (time.perf_counter_ns() - began) / 1000 / count
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    return percentile(records, 50), later


async def _difference(http: aiohttp.ClientSession, model: str, text: str) -> float:
    """By how much the parts of one answer differ from the client's time, as a share of it.

    Raises:
        RuntimeError: the answer does not report its parts.
        aiohttp.ClientResponseError: the answer is an error.
    """
    body = {"model": model, "stream": True, "messages": [{"role": "user", "content": text}]}
    began = time.perf_counter()
    headers = {"x-debug-timing": "1"}
    async with http.post("/v1/chat/completions", json=body, headers=headers) as response:
        response.raise_for_status()
        received = await response.read()
    client_ms = (time.perf_counter() - began) * 1000
    _, found, comment = received.rpartition(b": server-timing: ")
    if not found:
        raise RuntimeError(f"an answer without its parts: {received[-300:]!r}")
    steps = {name: float(duration) for name, duration in STEP.findall(comment)}
    return abs(client_ms - sum(steps[part] for part in PARTS)) / client_ms


async def differences(url: str, model: str, rounds: int) -> list[float]:
    async with aiohttp.ClientSession(url) as http:
        found = [await _difference(http, model, f"Question {number}.") for number in range(-WARM_UP, rounds)]
    return found[WARM_UP:]


def run(options: Options) -> list[Figure]:
    rounds = QUICK_ROUNDS if options.quick else ROUNDS
    costs: list[tuple[float, float]] = []
    shares: list[list[float]] = []
    for _ in range(options.repeats):
        costs.append(asyncio.run(cost_us(QUICK_RECORDS if options.quick else RECORDS)))
        with scripted_engine(MODEL, TOKENS, ITL_MS) as engine, promptly(settings_for(engine.url)) as endpoint:
            shares.append(asyncio.run(differences(endpoint.url, endpoint.model, rounds)))
    figures = [
        Figure("record of one request", "µs", tuple(record for record, _ in costs), at_most(30)),
        Figure("its windows, monitor and log line, later", "µs", tuple(later for _, later in costs)),
        Figure(
            "sum of the parts against the client's time, p50",
            "%",
            tuple(percentile(each, 50) * 100 for each in shares),
            at_most(2),
        ),
        Figure(
            "sum of the parts against the client's time, p95",
            "%",
            tuple(percentile(each, 95) * 100 for each in shares),
        ),
    ]
    write_report(options.out, "timeline", figures, about={"engine": f"{TOKENS} tokens, {ITL_MS:g} ms each"})
    return figures
