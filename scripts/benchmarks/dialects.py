"""What Messages and Responses add to the time to first token of a chat, all three through Promptly.

One stream; the three dialects take turns in a random order, each with a text of its own, so that nothing is
cached. TTFT is the time from sending to the first bytes with text, not to a dialect's opening events.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import aiohttp

from benchmarks.engines import scripted_engine
from benchmarks.layer import MODEL, settings_for
from benchmarks.load import percentile
from benchmarks.options import Options
from benchmarks.peers import promptly
from benchmarks.table import Figure, at_most, write_report

ROUNDS, QUICK_ROUNDS, WARM_UP = 300, 10, 10
TOKENS, ITL_MS = 20, 10.0
CHAT, MESSAGES, RESPONSES = "chat", "Messages", "Responses"


def _chat(text: str) -> tuple[str, dict[str, Any]]:
    return "/v1/chat/completions", {"messages": [{"role": "user", "content": text}], "max_tokens": TOKENS}


def _messages(text: str) -> tuple[str, dict[str, Any]]:
    return "/v1/messages", _chat(text)[1]


def _responses(text: str) -> tuple[str, dict[str, Any]]:
    return "/v1/responses", {"input": text, "max_output_tokens": TOKENS}


ASKS: dict[str, Callable[[str], tuple[str, dict[str, Any]]]] = {
    CHAT: _chat,
    MESSAGES: _messages,
    RESPONSES: _responses,
}
FIRST_TEXT = {CHAT: b'"content":" ', MESSAGES: b'"text":" ', RESPONSES: b'"delta":" '}
"""The scripted engine's words begin with a space."""


async def ttft_ms(http: aiohttp.ClientSession, dialect: str, model: str, text: str) -> float:
    """The TTFT of one answer, which is read to its end.

    Raises:
        RuntimeError: the answer has no text.
        aiohttp.ClientResponseError: the answer is an error.
    """
    path, fields = ASKS[dialect](text)
    received, first = b"", None
    start = time.perf_counter()
    async with http.post(path, json={"model": model, "stream": True, **fields}) as response:
        response.raise_for_status()
        async for part in response.content.iter_any():
            now = time.perf_counter()
            received += part
            if first is None and FIRST_TEXT[dialect] in received:
                first = now
    if first is None:
        raise RuntimeError(f"{dialect}: an answer without text: {received[:500]!r}")
    return (first - start) * 1000


async def take_turns(url: str, model: str, rounds: int, seed: int) -> dict[str, list[float]]:
    """TTFTs in ms by dialect."""
    chooser = random.Random(seed)
    found: dict[str, list[float]] = {dialect: [] for dialect in ASKS}
    async with aiohttp.ClientSession(url) as http:
        for number in range(-WARM_UP, rounds):
            for dialect in chooser.sample(list(ASKS), len(ASKS)):
                taken = await ttft_ms(http, dialect, model, f"{dialect} {seed} {number} " + "a word " * 100)
                if number >= 0:
                    found[dialect].append(taken)
    return found


def run(options: Options) -> list[Figure]:
    rounds = QUICK_ROUNDS if options.quick else ROUNDS
    with (
        scripted_engine(MODEL, TOKENS, ITL_MS) as engine,
        promptly(settings_for(engine.url)) as endpoint,
    ):
        runs = [asyncio.run(take_turns(endpoint.url, MODEL, rounds, seed)) for seed in range(options.repeats)]
    figures = [
        Figure(
            f"TTFT p50 of {dialect} over chat",
            "ms",
            tuple(median(found[dialect]) - median(found[CHAT]) for found in runs),
            at_most(1.0),
        )
        for dialect in (MESSAGES, RESPONSES)
    ]
    for dialect in ASKS:
        figures += [
            Figure(f"TTFT p{p}, {dialect}", "ms", tuple(percentile(found[dialect], p) for found in runs))
            for p in (50, 99)
        ]
    about = {
        "engine": f"scripted, {TOKENS} tokens, {ITL_MS:g} ms each",
        "load": f"one stream, {rounds} requests of each dialect in turn; responses are stored",
    }
    write_report(options.out, "dialects", figures, about=about)
    return figures
