"""How long a start takes, and whether the first user notices that it was one.

    python scripts/bench_start.py [--repeats 3] [--config config/local.yaml] [--out bench]

Each repeat starts the application as `make serve` does, then sends distinct streamed requests one after
the other (`no-store`: every one runs on the engine). It reports the seconds until the first answer, the
first request's TTFT over the median of those after it, and how soon the engine stops when a client leaves;
each as median and spread of the repeats.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp
import yaml

ROOT = Path(__file__).parents[1]
READY_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 90.0
STEADY_REQUESTS = 15
TARGET_START_S = 60.0
TARGET_RATIO = 1.5
TARGET_ABORT_MS = 1000.0
ABORTS = 10

# Of one length and sharing no beginning beyond the chat template: no request warms another's prefix.
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
    """One repeat. Times in seconds and milliseconds as named."""

    ready_s: float
    first_answer_s: float
    first_ttft_ms: float
    steady_ttft_ms: float
    abort_ms: float

    @property
    def ratio(self) -> float:
        return self.first_ttft_ms / self.steady_ttft_ms


@contextmanager
def running(config: Path, folder: Path) -> Iterator[str]:
    """The application's URL once it is ready; stopped with SIGINT."""
    ready = folder / "ready.json"
    command = [sys.executable, str(ROOT / "scripts" / "launch.py"), str(config), "--ready-file", str(ready)]
    with (folder / "launch.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
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
    """Until the first chunk that holds text."""
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
    """From closing a stream until the engine reports no running request (reports are 250 ms apart)."""
    question = [{"role": "user", "content": "Tell me a very long story."}]
    body: dict[str, Any] = {"model": model, "messages": question, "stream": True, "max_tokens": 2000}
    response = await http.post("/v1/chat/completions", json=body, headers={"cache-control": "no-store"})
    await response.content.readany()
    await wait_running(http, model, 1)
    left = time.perf_counter()
    response.close()
    await wait_running(http, model, 0)
    return (time.perf_counter() - left) * 1000


async def wait_running(http: aiohttp.ClientSession, model: str, count: int) -> None:
    async with asyncio.timeout(30):
        while True:
            async with http.get("/admin/fleet") as response:
                fleet = await response.json()
            if fleet[model][0]["running"] == count:
                return
            await asyncio.sleep(0.01)


async def requests(url: str, model: str) -> tuple[list[float], float]:
    """Every TTFT in order, and the slowest abort, in milliseconds."""
    async with aiohttp.ClientSession(url) as http:
        ttfts = [await ttft_ms(http, model, city) for city in CITIES[: 1 + STEADY_REQUESTS]]
        return ttfts, max([await abort_ms(http, model) for _ in range(ABORTS)])


def measure(config: Path, model: str) -> Start:
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, running(config, Path(folder)) as url:
        ready_s = time.monotonic() - started
        (first, *others), slowest_abort = asyncio.run(requests(url, model))
        return Start(ready_s, ready_s + first / 1000, first, median(others), slowest_abort)


def row(name: str, values: list[float], target: float) -> str:
    met = "met" if median(values) <= target else "**not met**"
    spread = f"{min(values):.2f}–{max(values):.2f}"
    return f"| {name} | {median(values):.2f} | {spread} | ≤ {target:g} | {met} |"


def report(starts: list[Start]) -> str:
    lines = ["| figure | median | spread | target | |", "|---|---|---|---|---|"]
    answer = [start.first_answer_s for start in starts]
    lines.append(row("start until the first answer, s", answer, TARGET_START_S))
    ratios = [start.ratio for start in starts]
    lines.append(row("first TTFT / steady TTFT", ratios, TARGET_RATIO))
    aborts = [start.abort_ms for start in starts]
    lines.append(row(f"client gone until the abort, slowest of {ABORTS}, ms", aborts, TARGET_ABORT_MS))
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--config", type=Path, default=ROOT / "config" / "local.yaml")
    parser.add_argument("--out", type=Path, default=ROOT / "bench")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    document: dict[str, Any] = yaml.safe_load(options.config.read_text())
    model = document["applications"][0]["args"]["models"][0]["id"]
    starts = [measure(options.config, model) for _ in range(options.repeats)]
    table = report(starts)
    print(table)
    options.out.mkdir(exist_ok=True)
    (options.out / "start.md").write_text(table + "\n")
    figures = [asdict(start) | {"ratio": start.ratio} for start in starts]
    (options.out / "start.json").write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
