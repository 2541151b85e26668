"""State of the Responses API: is a response still found after any process dies, and how long does a look-up
take?

A try is one response, the kill of one process (SIGKILL) at the moment the response's last event arrives, and
at once a request with `previous_response_id`. The client repeats a request as OpenAI's client does: after a
broken connection and after a 503. A try counts when the second answer is whole and was generated from the
first one.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import aiohttp

from benchmarks.engines import ScriptedProcess, scripted_process
from benchmarks.kills import CONTROLLER, GATEWAY, HAPROXY, Part, back, kill
from benchmarks.load import percentile
from benchmarks.options import Options
from benchmarks.peers import Endpoint, promptly
from benchmarks.peers.processes import scratch_folder
from benchmarks.response_store import filled, looked_up
from benchmarks.table import Figure, at_least, at_most, write_report

MODEL = "scripted"
TRIES, QUICK_TRIES = 100, 5
STORED, QUICK_STORED = 100_000, 2_000
LOOK_UPS = 2_000
PATIENCE_S = 30.0
PAUSE_S = 0.05
RETRIED = (500, 502, 503, 504)

STORE = Part("the store", "Responses")
PARTS = (STORE, GATEWAY, "an engine", HAPROXY, CONTROLLER)
"""Every process that a request of this path needs, and every process that keeps those running."""


def run(options: Options) -> list[Figure]:
    tries = QUICK_TRIES if options.quick else TRIES
    stored = QUICK_STORED if options.quick else STORED
    found = [asyncio.run(after_kills(tries)) for _ in range(1)]
    look_ups, writes = look_up_times(stored, options.repeats)
    figures = [
        Figure(
            f"`previous_response_id` after killing any process, of {tries} tries",
            "",
            tuple(float(each) for each in found),
            at_least(tries),
        ),
        Figure(f"look-up, {stored:,} responses stored, p50", "ms", p_of(look_ups, 50)),
        Figure(f"look-up, {stored:,} responses stored, p99", "ms", p_of(look_ups, 99), at_most(2.0)),
        Figure("write of a response, p50", "ms", p_of(writes, 50)),
        Figure("write of a response, p99", "ms", p_of(writes, 99)),
    ]
    about = {
        "killed in turn": "the store, one gateway of two, one engine of two, HAProxy, Serve's controller",
        "look-up": "a call over the private wire, as a gateway makes it, from another process",
    }
    write_report(options.out, "responses", figures, about=about)
    return figures


def p_of(runs: Sequence[Sequence[float]], percent: float) -> tuple[float, ...]:
    return tuple(percentile(each, percent) for each in runs)


def look_up_times(stored: int, repeats: int) -> tuple[list[list[float]], list[list[float]]]:
    """Milliseconds of each look-up and of each write, by repeat."""
    with scratch_folder() as folder:
        ids = asyncio.run(filled(folder, stored))
        runs = [asyncio.run(looked_up(folder, ids, LOOK_UPS)) for _ in range(repeats)]
    return [look_ups for look_ups, _ in runs], [writes for _, writes in runs]


async def after_kills(tries: int) -> int:
    """How many tries succeeded."""
    with ExitStack() as stack:
        engines = [stack.enter_context(scripted_process(MODEL, tokens=8, itl_ms=2.0)) for _ in range(2)]
        upstreams = [
            {"name": f"e{number}", "url": f"{engine.url}/v1", "kind": "vllm"}
            for number, engine in enumerate(engines)
        ]
        settings: dict[str, Any] = {
            "models": [{"id": MODEL, "upstreams": upstreams}],
            "gateway": {"replicas": 2},
        }
        endpoint = stack.enter_context(promptly(settings))
        good = 0
        for number in range(tries):
            good += await one_try(endpoint, engines, PARTS[number % len(PARTS)], number)
    return good


async def one_try(
    endpoint: Endpoint, engines: Sequence[ScriptedProcess], part: Part | str, number: int
) -> bool:
    first = await asked(endpoint.url, {"input": f"Try {number}."})
    killed = engines[number % len(engines)]
    if isinstance(part, Part):
        kill(endpoint, part)
    else:
        killed.kill()
    try:
        second = await asked(endpoint.url, {"input": "Go on.", "previous_response_id": first["id"]})
    except TimeoutError:
        second = {}
    if isinstance(part, Part):
        await back(endpoint, part)
    else:
        killed.start()
    went_on = second.get("previous_response_id") == first["id"] and second.get("status") == "completed"
    more = second.get("usage", {}).get("input_tokens", 0) > first["usage"]["input_tokens"]
    return bool(went_on and more)


async def asked(url: str, fields: dict[str, Any]) -> dict[str, Any]:
    """The response in a stream's last event. Raises: TimeoutError: no response came in time."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            response = await once(url, {"model": MODEL, "stream": True, **fields})
            if response is not None:
                return response
            await asyncio.sleep(PAUSE_S)


async def once(url: str, body: dict[str, Any]) -> dict[str, Any] | None:
    """Send a request once; ``None`` if a client would repeat it. Raises: RuntimeError: it was refused."""
    try:
        async with aiohttp.ClientSession(url) as http, http.post("/v1/responses", json=body) as response:
            text = await response.text()
    except (aiohttp.ClientError, OSError):
        return None
    if response.status in RETRIED:
        return None
    if response.status != 200:
        raise RuntimeError(text)
    last = text.rstrip().rpartition("\n")[2].removeprefix("data: ")
    event = json.loads(last)
    answer: dict[str, Any] | None = event.get("response") if event["type"] == "response.completed" else None
    return answer
