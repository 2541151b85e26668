"""A load generator that is cheap per chunk: it takes timestamps while bytes arrive and does all else
afterwards.

    cd scripts; python -m benchmarks.load --url http://127.0.0.1:8000 --streams 64 --requests 256 --tokens 50

A *chunk* is one read that holds at least one token's event; events that a proxy joins are one chunk, and the
wait for it shows in its gap. *Tokens* are the events with text: a role event, a separate finish reason, the
usage event and ``[DONE]`` have none.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import random
import re
import time
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, cast
from urllib.parse import urlsplit

from launcher.processes import descendants, process_table

T = TypeVar("T")

CONNECT_S = 5.0
LIMIT_S = 120.0
TIME_LIMIT = "time limit"
HEAD_LIMIT = 1 << 16

# Quotes inside JSON strings are escaped, so none of these can be part of a text.
TEXT = re.compile(rb'"(?:content|text)": ?"(?!")')
ERROR = b'data: {"error"'
DONE = b"data: [DONE]"
COMPLETION_TOKENS = re.compile(rb'"completion_tokens": ?(\d+)')

WANTED_HEADERS = ("x-cache", "x-served-by", "retry-after")

# ---- what is sent, and what came of it -------------------------------------------------------------------


@dataclass(frozen=True)
class Request:
    """One HTTP request; POST if it has a body."""

    path: str
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    keep_body: bool = False
    """Whether the sample keeps the response's body."""


@dataclass(frozen=True)
class Sample:
    """The outcome of one request. Times are seconds after the start of the run, or between two events."""

    status: int
    """0 without a response."""
    sent_at: float
    ended_at: float
    late_s: float = 0.0
    """Delay of an open loop after the due time: the lateness of the generator itself."""
    ttft_s: float | None = None
    """From sending (including connecting) to the first bytes of a body."""
    gaps_s: tuple[float, ...] = ()
    """Times between chunks."""
    tokens: int = 0
    error: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    """The ``WANTED_HEADERS`` that the response had."""
    body: bytes | None = None

    @property
    def refused(self) -> bool:
        """Refused by a limit, which is not a failure."""
        return self.status in (429, 503)

    @property
    def failed(self) -> bool:
        return self.error is not None and not self.refused

    @property
    def ok(self) -> bool:
        return self.error is None


def chat_request(model: str, text: str, max_tokens: int, *, stream: bool = True, **more: Any) -> Request:
    """A chat with one user message; ``more`` holds more fields of the body."""
    messages = [{"role": "user", "content": text}]
    values = {"model": model, "messages": messages, "max_tokens": max_tokens, "stream": stream, **more}
    return Request("/v1/chat/completions", json.dumps(values).encode())


def poisson(requests: Iterable[Request], rate_per_s: float, seed: int = 0) -> list[tuple[float, Request]]:
    """Arrival times (seconds after the start) of a Poisson process."""
    gaps, at = random.Random(seed), 0.0
    arrivals = []
    for request in requests:
        at += gaps.expovariate(rate_per_s)
        arrivals.append((at, request))
    return arrivals


# ---- HTTP ------------------------------------------------------------------------------------------------


class _Chunked:
    """A chunked body."""

    def __init__(self) -> None:
        self.complete = False
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        """The payload of the complete HTTP chunks.

        Raises:
            ValueError: this is no chunked body.
        """
        data = self._rest + data if self._rest else data
        start, payload = 0, b""
        while (line_end := data.find(b"\r\n", start)) >= 0:
            size = int(data[start:line_end].partition(b";")[0], 16)
            if size == 0:
                self.complete = data.find(b"\r\n\r\n", line_end) >= 0
                break
            end = line_end + 2 + size
            if len(data) < end + 2:
                break
            payload += data[line_end + 2 : end]
            start = end + 2
        self._rest = data[start:]
        return payload


class _Sized:
    """A body with a ``content-length``."""

    def __init__(self, length: int) -> None:
        self._left = length
        self.complete = length == 0

    def feed(self, data: bytes) -> bytes:
        self._left -= len(data)
        self.complete = self._left <= 0
        return data


class _Response:
    """One response as it arrives."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.pieces: list[bytes] = []
        self.first_at: float | None = None
        self.chunks_at: list[float] = []
        self._head = b""
        self._body: _Chunked | _Sized | None = None

    @property
    def complete(self) -> bool:
        return self._body is not None and self._body.complete

    @property
    def keeps_alive(self) -> bool:
        return self.complete and self.headers.get("connection", "").lower() != "close"

    @property
    def is_stream(self) -> bool:
        return self.headers.get("content-type", "").startswith("text/event-stream")

    def feed(self, data: bytes, now: float) -> None:
        """Raises: ValueError: this is not HTTP. KeyError: a body without a length; no server here sends
        one."""
        if self._body is None:
            data = self._take_head(data)
            if self._body is None:
                return
        if data and (payload := self._body.feed(data)):
            if self.first_at is None:
                self.first_at = now
            if TEXT.search(payload):
                self.chunks_at.append(now)
            self.pieces.append(payload)

    def _take_head(self, data: bytes) -> bytes:
        """The bytes after the head, if the head is complete."""
        self._head += data
        if not self._head.startswith(b"HTTP/1.1 "[: len(self._head)]) or len(self._head) > HEAD_LIMIT:
            raise ValueError("no HTTP")
        head, blank, rest = self._head.partition(b"\r\n\r\n")
        if not blank:
            return b""
        first, *lines = head.decode("latin-1").split("\r\n")
        self.status = int(first.split(" ")[1])
        pairs = (line.partition(":") for line in lines)
        self.headers = {name.lower(): value.strip() for name, _, value in pairs}
        if self.headers.get("transfer-encoding") == "chunked":
            self._body = _Chunked()
        else:
            self._body = _Sized(int(self.headers["content-length"]))
        return rest


class _Connection(asyncio.Protocol):
    """One keep-alive connection; one request at a time."""

    def __init__(self) -> None:
        self.closed = asyncio.get_running_loop().create_future()
        self._response = _Response()
        self._ended: asyncio.Future[None] | None = None

    async def exchange(self, request: bytes, response: _Response) -> None:
        """Send, and receive until the response is whole, is not HTTP, or the connection ends."""
        self._response = response
        self._ended = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        await self._ended

    def abort(self) -> None:
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's class does not derive from it

    def data_received(self, data: bytes) -> None:
        try:
            self._response.feed(data, time.perf_counter())
        except (ValueError, KeyError) as error:
            self._end(error)
        else:
            if self._response.complete:
                self._end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set_result(None)
        self._end(None)

    def _end(self, error: Exception | None) -> None:
        ended, self._ended = self._ended, None
        if ended is None or ended.done():
            return
        if error is None:
            ended.set_result(None)
        else:
            ended.set_exception(error)


class Client:
    """Connections to one server for one run of at most ``limit_s`` seconds."""

    def __init__(self, url: str, limit_s: float = LIMIT_S) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or parts.hostname is None:
            raise ValueError(f"{url!r} is not an http:// URL")
        self._host, self._port, self._prefix = parts.hostname, parts.port or 80, parts.path.rstrip("/")
        self._idle: list[_Connection] = []
        self._open: set[_Connection] = set()
        self._limit_s = limit_s

    async def __aenter__(self) -> Self:
        self._started = time.perf_counter()
        self._deadline = asyncio.get_running_loop().time() + self._limit_s
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self._open:
            connection.abort()
        await asyncio.gather(*(connection.closed for connection in self._open))

    def now(self) -> float:
        """Seconds since the start of the run."""
        return time.perf_counter() - self._started

    async def send(self, request: Request, due_at: float | None = None) -> Sample:
        """Send one request now. Every failure is recorded in the sample, also the end of the time limit."""
        response, sent_at = _Response(), self.now()
        error = await self._attempt(request, response) if sent_at < self._limit_s else TIME_LIMIT
        return self._sample(request, response, sent_at, sent_at if due_at is None else due_at, error)

    async def _attempt(self, request: Request, response: _Response) -> str | None:
        """The error, empty without one."""
        try:
            async with asyncio.timeout_at(self._deadline):
                await self._fetch(request, response)
        except TimeoutError:
            return TIME_LIMIT
        except OSError:
            return "no connection"
        except (ValueError, KeyError):
            return "no HTTP"
        return _judge(response)

    async def _fetch(self, request: Request, response: _Response) -> None:
        connection = await self._connection()
        try:
            await connection.exchange(self._encode(request), response)
        finally:
            if response.keeps_alive and not connection.closed.done():
                self._idle.append(connection)
            else:
                connection.abort()

    async def _connection(self) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed.done():
                return connection
            self._open.discard(connection)
        opening = asyncio.get_running_loop().create_connection(_Connection, self._host, self._port)
        try:
            _, connection = await asyncio.wait_for(opening, CONNECT_S)
        except TimeoutError as error:
            raise ConnectionError("no connection in time") from error
        self._open.add(connection)
        return connection

    def _encode(self, request: Request) -> bytes:
        headers = {
            "host": f"{self._host}:{self._port}",
            "content-type": "application/json",
            **request.headers,
        }
        headers["content-length"] = str(len(request.body))
        lines = [f"{'POST' if request.body else 'GET'} {self._prefix}{request.path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + request.body

    def _sample(
        self, request: Request, response: _Response, sent_at: float, due_at: float, error: str | None
    ) -> Sample:
        body = b"".join(response.pieces)
        chunks = response.chunks_at
        first_at = response.first_at
        return Sample(
            status=response.status,
            sent_at=sent_at,
            ended_at=self.now(),
            late_s=sent_at - due_at,
            ttft_s=None if first_at is None else first_at - self._started - sent_at,
            gaps_s=tuple(later - sooner for sooner, later in pairwise(chunks)),
            tokens=_count_tokens(response, body),
            error=error,
            headers={name: response.headers[name] for name in WANTED_HEADERS if name in response.headers},
            body=body if request.keep_body else None,
        )


def _count_tokens(response: _Response, body: bytes) -> int:
    if response.is_stream:
        return sum(1 for _ in TEXT.finditer(body))
    found = COMPLETION_TOKENS.search(body)
    return int(found[1]) if found else 0


def _judge(response: _Response) -> str | None:
    """The error of a response that has ended, whole or not."""
    if not response.complete:
        return "cut"
    if response.status != 200:
        return f"status {response.status}"
    body = b"".join(response.pieces)
    if response.is_stream and ERROR in body:
        return "error event"
    return "no [DONE]" if response.is_stream and DONE not in body else None


# ---- runs ------------------------------------------------------------------------------------------------


async def closed_loop(
    url: str, requests: Sequence[Request], streams: int, *, limit_s: float = LIMIT_S
) -> list[Sample]:
    """Keep ``streams`` requests in flight: each stream sends its next request when the last one is answered.

    One sample per request, in order; those that the time limit left unsent are errors as well.
    """
    samples: dict[int, Sample] = {}
    todo = iter(enumerate(requests))

    async def stream(client: Client) -> None:
        for index, request in todo:
            samples[index] = await client.send(request)

    async with Client(url, limit_s) as client:
        await asyncio.gather(*(stream(client) for _ in range(streams)))
    return [samples[index] for index in range(len(requests))]


async def open_loop(
    url: str, arrivals: Sequence[tuple[float, Request]], *, limit_s: float = LIMIT_S
) -> list[Sample]:
    """Send each request at its own time (seconds after the start), however slow the answers are."""

    async def one(client: Client, at: float, request: Request) -> Sample:
        await asyncio.sleep(min(at, limit_s) - client.now())
        return await client.send(request, at)

    async with Client(url, limit_s) as client:
        work: list[Awaitable[Sample]] = [one(client, at, request) for at, request in arrivals]
        return await asyncio.gather(*work)


# ---- figures ---------------------------------------------------------------------------------------------


def percentile(values: Iterable[float], percent: float) -> float:
    """The nearest-rank percentile; NaN without values."""
    ordered = sorted(values)
    if not ordered:
        return math.nan
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


@dataclass(frozen=True)
class Summary:
    """Figures of one run. Times and tokens are those of complete answers."""

    requests: int
    errors: int
    refused: int
    """Statuses 429 and 503, which are not errors."""
    tokens: int
    tokens_per_s: float
    """From the first request sent to the last answer's end."""
    ttft_p50_ms: float
    ttft_p99_ms: float
    chunk_delay_p50_ms: float
    """A gap between chunks minus the nominal one, at least 0."""
    chunk_delay_p99_ms: float
    late_p99_ms: float
    """For an open loop: if this is not small, the generator could not keep up."""


def summarise(samples: Sequence[Sample], itl_s: float = 0.0) -> Summary:
    """``itl_s`` is the engine's nominal time between tokens, in seconds."""
    good = [sample for sample in samples if sample.ok]
    delays = [max(0.0, gap - itl_s) * 1000 for sample in good for gap in sample.gaps_s]
    ttfts = [sample.ttft_s * 1000 for sample in good if sample.ttft_s is not None]
    tokens = sum(sample.tokens for sample in good)
    span = max((sample.ended_at for sample in good), default=math.nan) - min(
        (sample.sent_at for sample in samples), default=math.nan
    )
    return Summary(
        requests=len(samples),
        errors=sum(sample.failed for sample in samples),
        refused=sum(sample.refused for sample in samples),
        tokens=tokens,
        tokens_per_s=tokens / span,
        ttft_p50_ms=percentile(ttfts, 50),
        ttft_p99_ms=percentile(ttfts, 99),
        chunk_delay_p50_ms=percentile(delays, 50),
        chunk_delay_p99_ms=percentile(delays, 99),
        late_p99_ms=percentile((sample.late_s * 1000 for sample in samples), 99),
    )


def cpu_seconds(pids: Iterable[int]) -> dict[int, float]:
    """User and system time of each process and its descendants so far, from ``/proc``. Ended children count
    once their parent has waited for them. Resolution: 10 ms.

    Ended children count once their parent has waited for them. Resolution: 10 ms.
    """
    table = process_table()
    return {pid: sum(_own_cpu_s(member) for member in (pid, *descendants(pid, table))) for pid in pids}


def _own_cpu_s(pid: int) -> float:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0.0  # it has ended
    after_name = stat.rpartition(")")[2].split()
    return sum(map(int, after_name[11:15])) / os.sysconf("SC_CLK_TCK")


# ---- by hand ---------------------------------------------------------------------------------------------


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--url", required=True)
    parser.add_argument("--model", default="sim")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--requests", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=50)
    parser.add_argument("--itl-ms", type=float, default=20.0, help="the engine's own, for chunk delays")
    parser.add_argument(
        "--rate", type=float, help="requests per second, arriving at random; no fixed streams"
    )
    parser.add_argument("--limit-s", type=float, default=LIMIT_S)
    parser.add_argument("--key", help="bearer key")
    parser.add_argument("--pid", type=int, action="append", default=[], help="report this process's CPU time")
    return parser.parse_args()


async def measure(options: argparse.Namespace) -> list[Sample]:
    headers = {"authorization": f"Bearer {options.key}"} if options.key else {}
    bodies = (
        chat_request(options.model, f"Request {index}.", options.tokens) for index in range(options.requests)
    )
    requests = [Request(request.path, request.body, headers) for request in bodies]
    if options.rate is None:
        return await closed_loop(options.url, requests, options.streams, limit_s=options.limit_s)
    return await open_loop(options.url, poisson(requests, options.rate), limit_s=options.limit_s)


def run_fast(main: Awaitable[T]) -> T:
    """Run on uvloop where it is installed."""

    async def awaited() -> T:
        return await main

    try:
        import uvloop
    except ImportError:
        return asyncio.run(awaited())
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(awaited())


def main() -> None:
    options = arguments()
    pids = [os.getpid(), *options.pid]
    before = cpu_seconds(pids)
    samples = run_fast(measure(options))
    after = cpu_seconds(pids)
    summary = summarise(samples, options.itl_ms / 1000)
    rows = [(item.name, getattr(summary, item.name)) for item in fields(summary)]
    rows += [(f"cpu_s of process {pid}", after[pid] - before[pid]) for pid in pids]
    for name, value in rows:
        print(f"{name:28} {value:12.2f}" if isinstance(value, float) else f"{name:28} {value:12}")
    for error in sorted({sample.error for sample in samples if sample.error}):
        print(f"{error:28} {sum(sample.error == error for sample in samples):12}")


if __name__ == "__main__":
    main()
