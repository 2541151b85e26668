"""Engines are killed while they answer: failed streams, and texts that differ from undisturbed ones.

There are four scripted engines, 100 streams at any moment, and 20 kills (SIGKILL). Each engine is started
again at once.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from benchmarks.engines import ScriptedProcess, scripted_process
from benchmarks.load import Request, Sample, chat_request, closed_loop, percentile, run_fast
from benchmarks.options import Options
from benchmarks.peers import promptly
from benchmarks.table import Figure, at_most, write_report

MODEL = "scripted"
ENGINES, STREAMS, KILLS = 4, 100, 20
TOKENS, ITL_MS = 100, 20.0  # two seconds an answer
BETWEEN_KILLS_S = 1.0
CONTENT = re.compile(rb'"content":"((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Chaos:
    """One repeat."""

    failed: int
    different: int
    answers: int
    longest_pause_ms: float


def run(options: Options) -> list[Figure]:
    kills = 3 if options.quick else KILLS
    repeats = [chaos(kills) for _ in range(options.repeats)]
    figures = [
        Figure("failed streams", "", tuple(float(each.failed) for each in repeats), at_most(0)),
        Figure("texts that differ", "", tuple(float(each.different) for each in repeats), at_most(0)),
        Figure("longest pause in a stream", "ms", tuple(each.longest_pause_ms for each in repeats)),
        Figure("answers", "", tuple(float(each.answers) for each in repeats)),
    ]
    about = {
        "engines": f"{ENGINES} scripted, {TOKENS} tokens of {ITL_MS:g} ms",
        "kills": f"{kills} × SIGKILL",
    }
    write_report(options.out, "failover", figures, about=about)
    return figures


def chaos(kills: int) -> Chaos:
    with ExitStack() as stack:
        engines = [
            stack.enter_context(scripted_process(MODEL, tokens=TOKENS, itl_ms=ITL_MS, slots=256))
            for _ in range(ENGINES)
        ]
        upstreams = [
            {
                "name": f"engine-{number}",
                "url": f"{engine.url}/v1",
                "kind": "vllm",
                "max_requests": 256,
                "health_period_s": 0.2,
            }
            for number, engine in enumerate(engines)
        ]
        settings = {"models": [{"id": MODEL, "upstreams": upstreams}]}
        endpoint = stack.enter_context(promptly(settings))
        requests = [chat_request(MODEL, f"Question {number}.", TOKENS) for number in range(STREAMS)]
        kept = [Request(request.path, request.body, request.headers, keep_body=True) for request in requests]
        undisturbed = run_fast(closed_loop(endpoint.url, kept, STREAMS))
        waves = 1 + round(kills * BETWEEN_KILLS_S / (TOKENS * ITL_MS / 1000))
        disturbed = run_fast(_under_fire(endpoint.url, kept * waves, engines, kills))
    expected = [text_of(sample) for sample in undisturbed]
    return Chaos(
        failed=sum(not sample.ok for sample in [*undisturbed, *disturbed]),
        different=sum(
            text_of(sample) != expected[position % STREAMS] for position, sample in enumerate(disturbed)
        ),
        answers=len(disturbed),
        longest_pause_ms=percentile((1000 * gap for sample in disturbed for gap in sample.gaps_s), 100),
    )


async def _under_fire(
    url: str, requests: Sequence[Request], engines: Sequence[ScriptedProcess], kills: int
) -> list[Sample]:
    load = asyncio.ensure_future(closed_loop(url, requests, STREAMS))
    for kill in range(kills):
        await asyncio.sleep(BETWEEN_KILLS_S)
        engine = engines[kill % len(engines)]
        engine.kill()
        await asyncio.to_thread(engine.start)
    return await load


def text_of(sample: Sample) -> bytes:
    """The answer as it was streamed."""
    return b"".join(CONTENT.findall(sample.body or b""))
