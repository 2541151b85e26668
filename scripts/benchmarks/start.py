"""The time of a start, and whether the first user notices it.

Each repeat starts the application as `make serve` does, then sends different streamed requests one after the
other (`no-store`, so each runs on the engine). It reports the seconds until the first answer, the first
request's TTFT divided by the median of those after it, and the time until the engine stops after a client has
left. Each figure is the median and the spread of the repeats.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import yaml

from benchmarks.options import Options
from benchmarks.peers.endpoint import as_admin, environment
from benchmarks.table import Figure, at_most, write_report

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "config" / "local.yaml"
READY_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 90.0
STEADY_REQUESTS = 15
TARGET_START_S = 45.0
TARGET_RATIO = 1.5
TARGET_ABORT_MS = 1000.0
ABORTS = 10
TWO_WRITE_ABORTS = 50
LOST_MS = 30_000.0
"""An abort counts as lost if the engine has not seen it by then."""

BETWEEN_WRITES_S = 0.02

# All texts have one length and share only the chat template, so no request warms another one's prefix.
CITIES = [
    "Paris",
    "Rome",
    "Oslo",
    "Cairo",
    "Lima",
    "Quito",
    "Delhi",
    "Seoul",
    "Tokyo",
    "Bern",
    "Dublin",
    "Prague",
    "Vienna",
    "Madrid",
    "Lisbon",
    "Athens",
]


@dataclass(frozen=True)
class Start:
    """One repeat; the names give the units."""

    ready_s: float
    first_answer_s: float
    first_ttft_ms: float
    steady_ttft_ms: float
    abort_ms: float
    two_writes_abort_ms: tuple[float, ...]

    @property
    def ratio(self) -> float:
        return self.first_ttft_ms / self.steady_ttft_ms


CHECKOUT = (sys.executable, "-m", "deployments.cli")


@contextmanager
def running(config: Path, folder: Path, program: Sequence[str] = CHECKOUT, **variables: str) -> Iterator[str]:
    """The application's URL once it is ready. At the end it gets SIGINT. ``program``: `promptly`;
    ``variables``: of its environment."""
    ready = folder / "ready.json"
    command = [*program, "serve", str(config), "--ready-file", str(ready)]
    with (folder / "launch.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=environment() | variables,
        )
    try:
        wait_for(ready, process)
        yield json.loads(ready.read_text())["url"]
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(STOP_TIMEOUT_S)


def wait_for(ready: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while not ready.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"the application did not start (status {process.poll()})")
        time.sleep(0.05)


async def ttft_ms(http: aiohttp.ClientSession, model: str, city: str) -> float:
    """Milliseconds until the first chunk with text."""
    question = [{"role": "user", "content": f"{city}: what is it known for?"}]
    body: dict[str, Any] = {"model": model, "messages": question}
    body |= {"stream": True, "max_tokens": 8, "temperature": 0}
    started = time.perf_counter()
    async with http.post(
        "/v1/chat/completions", json=body, headers={"cache-control": "no-store"}
    ) as response:
        response.raise_for_status()
        await response.content.readany()
        elapsed = (time.perf_counter() - started) * 1000
        await response.read()
    return elapsed


async def abort_ms(http: aiohttp.ClientSession, model: str) -> float:
    """Milliseconds from closing a stream until the engine reports no running request (reports are 250 ms
    apart)."""
    question = [{"role": "user", "content": "Tell me a very long story."}]
    body: dict[str, Any] = {"model": model, "messages": question, "stream": True, "max_tokens": 2000}
    body["ignore_eos"] = True  # an answer that ends sooner than the next report is never seen running
    response = await http.post("/v1/chat/completions", json=body, headers={"cache-control": "no-store"})
    await response.content.readany()
    await wait_running(http, model, 1)
    left = time.perf_counter()
    response.close()
    await wait_running(http, model, 0)
    return (time.perf_counter() - left) * 1000


async def two_writes_abort_ms(http: aiohttp.ClientSession, url: str, model: str) -> float:
    """The same as ``abort_ms`` for a request that is not streamed and whose head and body come in two writes,
    as httpx (and so the OpenAI and Anthropic clients) sends it. At most :data:`LOST_MS`."""
    question = [{"role": "user", "content": "Tell me a very long story."}]
    body = json.dumps({"model": model, "messages": question, "max_tokens": 2000, "ignore_eos": True}).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: {urlsplit(url).netloc}\r\ncache-control: no-store\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    _, writer = await asyncio.open_connection(urlsplit(url).hostname, urlsplit(url).port)
    writer.write(head.encode())
    await writer.drain()
    await asyncio.sleep(BETWEEN_WRITES_S)  # otherwise both may leave in one packet
    writer.write(body)
    await wait_running(http, model, 1)
    left = time.perf_counter()
    writer.close()
    try:
        await wait_running(http, model, 0)
    except TimeoutError:
        return LOST_MS
    return (time.perf_counter() - left) * 1000


async def wait_running(http: aiohttp.ClientSession, model: str, count: int) -> None:
    async with asyncio.timeout(LOST_MS / 1000):
        while True:
            async with http.get("/admin/fleet", headers=as_admin()) as response:
                fleet = await response.json()
            if fleet[model][0]["running"] == count:
                return
            await asyncio.sleep(0.01)


async def requests(url: str, model: str) -> tuple[list[float], float, tuple[float, ...]]:
    """Every TTFT in order, the slowest abort, and the aborts of requests in two writes; all in
    milliseconds."""
    async with aiohttp.ClientSession(url) as http:
        ttfts = [await ttft_ms(http, model, city) for city in CITIES[: 1 + STEADY_REQUESTS]]
        slowest = max([await abort_ms(http, model) for _ in range(ABORTS)])
        others = [await two_writes_abort_ms(http, url, model) for _ in range(TWO_WRITE_ABORTS)]
        return ttfts, slowest, tuple(others)


def measure(config: Path, model: str) -> Start:
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, running(config, Path(folder)) as url:
        ready_s = time.monotonic() - started
        (first, *others), slowest_abort, two_writes = asyncio.run(requests(url, model))
        return Start(ready_s, ready_s + first / 1000, first, median(others), slowest_abort, two_writes)


def all_figures(starts: Sequence[Start]) -> list[Figure]:
    return [
        Figure(
            "start until the first answer",
            "s",
            tuple(start.first_answer_s for start in starts),
            at_most(TARGET_START_S),
        ),
        Figure(
            "first TTFT / steady TTFT", "×", tuple(start.ratio for start in starts), at_most(TARGET_RATIO)
        ),
        Figure(
            f"client gone until the abort, slowest of {ABORTS}",
            "ms",
            tuple(start.abort_ms for start in starts),
            at_most(TARGET_ABORT_MS),
        ),
        Figure(
            f"the same, not streamed and sent in two writes, slowest of {TWO_WRITE_ABORTS}",
            "ms",
            tuple(max(start.two_writes_abort_ms) for start in starts),
            at_most(TARGET_ABORT_MS),
        ),
    ]


def run(options: Options) -> list[Figure]:
    document: dict[str, Any] = yaml.safe_load(CONFIG.read_text())
    model = document["applications"][0]["args"]["models"][0]["id"]
    figures = all_figures([measure(CONFIG, model) for _ in range(options.repeats)])
    write_report(options.out, "start", figures, about={"config": CONFIG.name})
    return figures
