"""The console in headless Chromium: what it loads, and the times until its first paint and until its page of
requests has rows; with a few requests kept, and with a million that were sent and answered before.

Each visit has a profile of its own, so that nothing is in the browser's cache. First paint is Chromium's own
`first-contentful-paint`, from the navigation's start. The million requests are exact hits, which are the
fastest to send; the gateway is set to keep all of them.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

from browser import Browser, chromium

from benchmarks.cache import EMBEDDER_SETTINGS, ITL_MS, TOKENS
from benchmarks.engines import scripted_engine
from benchmarks.layer import MODEL, settings_for
from benchmarks.load import chat_request, closed_loop, run_fast
from benchmarks.options import Options
from benchmarks.peers import Endpoint, promptly
from benchmarks.table import Figure, at_most, write_report

KEPT, QUICK_KEPT = 1_000_000, 2_000
FEW = 100
VISITS, QUICK_VISITS = 5, 2
CLIENTS = 64
PIECE = 20_000
"""Requests that are sent before their outcomes are checked; this bounds the memory of their samples."""

PAINTED = "performance.getEntriesByName('first-contentful-paint').length > 0"
PAINT_MS = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
COMPOSER = "document.querySelector('.composer[data-ready=yes]') !== null"
ROWS_MS = """(async () => {
  const began = performance.now();
  location.hash = '#/requests';
  while (document.querySelector('[data-request]') === null) {
    if (performance.now() - began > 15000) throw new Error('no request is shown');
    await new Promise(requestAnimationFrame);
  }
  return performance.now() - began;
})()"""


@dataclass(frozen=True)
class Visit:
    paint_ms: float
    rows_ms: float
    requests: int
    """The number of requests until the playground can be used."""
    kilobytes: float


async def visit(browser: Browser, url: str, token: str) -> Visit:
    """Visit the console in a browser that has not loaded it before."""
    async with browser.page(f"{url}/console") as page:
        await page.until(f"{PAINTED} && {COMPOSER}")
        requests, received = len(page.requests), sum(page.received.values())
        paint_ms = await page.value(PAINT_MS)
        await page.value(f"session.signIn({token!r})")
        return Visit(paint_ms, await page.value(ROWS_MS), requests, received / 1000)


async def visits(url: str, token: str, count: int) -> list[Visit]:
    with tempfile.TemporaryDirectory() as profile:
        async with chromium(Path(profile)) as browser:
            await visit(browser, url, token)  # Chromium's own start is not the console's
            return [await visit(browser, url, token) for _ in range(count)]


async def fill(endpoint: Endpoint, count: int) -> None:
    """Raises: RuntimeError: a request failed."""
    asked = chat_request(MODEL, "What is asked again and again?", 2 * TOKENS, stream=False)
    for begun in range(0, count, PIECE):
        samples = await closed_loop(endpoint.url, [asked] * min(PIECE, count - begun), CLIENTS)
        failed = [sample for sample in samples if not sample.ok]
        if failed:
            raise RuntimeError(f"{len(failed)} of {len(samples)} requests failed: {failed[0].error}")


def one_start(options: Options) -> tuple[list[Visit], list[Visit]]:
    """Visits with a few requests kept, and with all."""
    kept = QUICK_KEPT if options.quick else KEPT
    count = QUICK_VISITS if options.quick else VISITS
    token = token_hex(16)
    settings: dict[str, Any] = {
        "embedder": EMBEDDER_SETTINGS,
        "cache": {"race": False},
        "gateway": {"recent_requests": kept},
    }
    with (
        scripted_engine(MODEL, TOKENS, ITL_MS) as engine,
        promptly(settings_for(engine.url, **settings), env={"PROMPTLY_ADMIN_TOKEN": token}) as endpoint,
    ):
        run_fast(fill(endpoint, FEW))
        few = asyncio.run(visits(endpoint.url, token, count))
        run_fast(fill(endpoint, kept))
        return few, asyncio.run(visits(endpoint.url, token, count))


def run(options: Options) -> list[Figure]:
    """Measure one start only, because sending a million requests takes most of ten minutes."""
    few, many = one_start(options)
    figures = [*_figures(few, "few requests kept"), *_figures(many, "a million requests kept")]
    write_report(options.out, "console", figures, about={"visits": "each with an empty browser cache"})
    return figures


def _figures(seen: Sequence[Visit], when: str) -> list[Figure]:
    return [
        Figure(f"console, {when}: first paint", "ms", tuple(each.paint_ms for each in seen), at_most(500)),
        Figure(f"console, {when}: page of requests", "ms", tuple(each.rows_ms for each in seen)),
        Figure(f"console, {when}: requests", "", tuple(float(each.requests) for each in seen), at_most(6)),
        Figure(f"console, {when}: loaded", "kB", tuple(each.kilobytes for each in seen), at_most(200)),
    ]
