"""The load generator, against the simulated engine and against servers that send given bytes."""

from __future__ import annotations

import asyncio
import math
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from benchmarks.load import (
    Request,
    Sample,
    chat_request,
    closed_loop,
    cpu_seconds,
    open_loop,
    percentile,
    poisson,
    summarise,
)
from sim_engine import NO_FAULTS, Faults, SimEngine, SimSettings, Stats

from deployments.launcher.ports import free_port

LIMIT_S = 10.0
TOKENS = 5
STREAM = chat_request("sim", "Hello", TOKENS)
WHOLE = chat_request("sim", "Hello", TOKENS, stream=False)
HOLD = replace(STREAM, headers={"x-sim-fault": "hang_after=2"})


@asynccontextmanager
async def engine(slots: int = 64, faults: Faults = NO_FAULTS) -> AsyncIterator[tuple[SimEngine, str]]:
    sim = SimEngine(SimSettings(itl_ms=2.0, slots=slots), faults)
    url = await sim.start()
    try:
        yield sim, url
    finally:
        await sim.stop()


@asynccontextmanager
async def scripted(*pieces: bytes) -> AsyncIterator[str]:
    """A server that answers one request per connection with these bytes, piece by piece, and closes."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def one(url: str, request: Request) -> Sample:
    (sample,) = await closed_loop(url, [request], 1, limit_s=LIMIT_S)
    return sample


# ---- what a sample holds


async def test_a_stream_is_timed_and_its_tokens_are_counted() -> None:
    async with engine() as (_, url):
        sample = await one(url, STREAM)
    assert (sample.status, sample.error, sample.tokens) == (200, None, TOKENS)
    assert sample.ttft_s is not None
    assert 0 < sample.ttft_s < sample.ended_at
    assert 1 <= len(sample.gaps_s) < TOKENS
    assert sample.ended_at - sample.sent_at >= sample.ttft_s + sum(sample.gaps_s)
    assert sample.body is None


@pytest.mark.parametrize("more", [{}, {"stream_options": {"include_usage": True}}])
async def test_the_usage_event_is_no_token(more: dict[str, object]) -> None:
    async with engine() as (_, url):
        assert (await one(url, chat_request("sim", "Hello", TOKENS, **more))).tokens == TOKENS


async def test_an_answer_that_is_not_streamed_counts_its_usage() -> None:
    async with engine() as (_, url):
        sample = await one(url, replace(WHOLE, keep_body=True))
    assert sample.tokens == TOKENS
    assert sample.body is not None
    assert sample.body.startswith(b'{"id":')


@pytest.mark.parametrize("size", [1, 3, 1000])
async def test_bytes_may_be_cut_anywhere(size: int) -> None:
    events = b'data: {"choices":[{"delta":{"role":"assistant"},"finish_reason":null}]}\n\n'
    events += b'data: {"choices":[{"delta":{"content":"data: [DONE]"},"finish_reason":null}]}\n\n' * TOKENS
    chunks = [b"%x\r\n%b\r\n" % (len(data), data) for data in (events[:7], events[7:], b"data: [DONE]\n\n")]
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
    response = head + b"x-cache: hit\r\nx-other: a\r\n\r\n" + b"".join(chunks) + b"0\r\n\r\n"
    pieces = [response[start : start + size] for start in range(0, len(response), size)]
    async with scripted(*pieces) as url:
        sample = await one(url, replace(STREAM, keep_body=True))
    assert (sample.error, sample.tokens) == (None, TOKENS)
    assert sample.body == events + b"data: [DONE]\n\n"
    assert sample.headers == {"x-cache": "hit"}


# ---- what goes wrong


@pytest.mark.parametrize(
    ("fault", "error", "tokens"),
    [
        ("die_before", "cut", 0),
        ("die_after=2", "cut", 2),
        ("error_after=2", "error event", 2),
        ("garbage=http", "no HTTP", 0),
        ("garbage=json", "no [DONE]", 0),
        ("status=500", "status 500", 0),
    ],
)
async def test_a_failure_is_named_and_what_came_before_it_counted(
    fault: str, error: str, tokens: int
) -> None:
    async with engine() as (_, url):
        sample = await one(url, replace(STREAM, headers={"x-sim-fault": fault}))
    assert (sample.error, sample.tokens) == (error, tokens)
    assert sample.failed
    assert not sample.refused


async def test_an_answer_shorter_than_its_length_is_cut() -> None:
    async with scripted(b'HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"id":') as url:
        assert (await one(url, WHOLE)).error == "cut"


async def test_a_server_that_is_not_there_is_an_error() -> None:
    sample = await one(f"http://127.0.0.1:{free_port()}", STREAM)
    assert (sample.status, sample.error) == (0, "no connection")


@pytest.mark.parametrize("status", [429, 503])
async def test_a_refusal_is_no_failure(status: int) -> None:
    async with engine(faults=Faults(status=status)) as (_, url):
        sample = await one(url, STREAM)
    assert (sample.status, sample.refused, sample.failed) == (status, True, False)
    assert sample.headers == {"retry-after": "1"}


async def test_only_plain_http_is_spoken() -> None:
    with pytest.raises(ValueError, match="not an http:// URL"):
        await closed_loop("https://127.0.0.1", [STREAM], 1)


# ---- runs


async def test_a_closed_loop_keeps_so_many_requests_in_flight() -> None:
    async with engine() as (sim, url):
        run = asyncio.create_task(closed_loop(url, [HOLD] * 5, 3, limit_s=LIMIT_S))
        async with asyncio.timeout(LIMIT_S):
            await sim.until(lambda stats: stats.running == 3)
        assert sim.stats().requests == 3
        run.cancel()
        async with asyncio.timeout(LIMIT_S):
            await sim.until(lambda stats: stats.aborted == 3)
        await asyncio.wait([run])


async def test_a_closed_loop_answers_in_order_over_kept_connections() -> None:
    lengths = [9, 1, 5, 2, 7]
    connections: list[int] = []

    def all_finished(stats: Stats) -> bool:
        connections.append(stats.connections)
        return stats.finished == len(lengths)

    async with engine() as (sim, url), asyncio.timeout(LIMIT_S):
        requests = [chat_request("sim", "Hello", tokens) for tokens in lengths]
        run = asyncio.create_task(closed_loop(url, requests, 2))
        await sim.until(all_finished)
        samples = await run
    assert [sample.tokens for sample in samples] == lengths
    assert max(connections) == 2


async def test_the_time_limit_ends_a_run_and_leaves_a_sample_of_every_request() -> None:
    async with engine() as (sim, url):
        async with asyncio.timeout(LIMIT_S):
            samples = await closed_loop(url, [HOLD] * 4, 2, limit_s=0.4)
            await sim.until(lambda stats: stats.aborted == 2)
        assert sim.stats().requests == 2
    assert [sample.error for sample in samples] == ["time limit"] * 4
    assert [sample.status for sample in samples] == [200, 200, 0, 0]


async def test_an_open_loop_does_not_wait_for_answers() -> None:
    arrivals = [(0.0, HOLD), (0.01, STREAM), (0.02, STREAM)]
    async with engine(slots=1) as (sim, url):
        run = asyncio.create_task(open_loop(url, arrivals, limit_s=LIMIT_S))
        async with asyncio.timeout(LIMIT_S):
            await sim.until(lambda stats: (stats.running, stats.waiting) == (1, 2))
        await sim.kill()
        samples = await run
    assert [sample.error for sample in samples] == ["cut"] * 3
    for (at, _), sample in zip(arrivals, samples, strict=True):
        assert sample.sent_at >= at
        assert sample.late_s == pytest.approx(sample.sent_at - at)


async def test_an_open_loop_ends_at_its_time_limit() -> None:
    async with engine() as (sim, url), asyncio.timeout(LIMIT_S):
        samples = await open_loop(url, [(0.0, STREAM), (1000.0, STREAM)], limit_s=0.4)
        assert sim.stats().requests == 1
    assert [sample.error for sample in samples] == [None, "time limit"]


def test_poisson_arrivals_are_reproducible_and_have_the_rate() -> None:
    requests = [STREAM] * 2000
    arrivals = [at for at, _ in poisson(requests, 100.0, seed=1)]
    assert arrivals == sorted(arrivals) == [at for at, _ in poisson(requests, 100.0, seed=1)]
    assert arrivals != [at for at, _ in poisson(requests, 100.0, seed=2)]
    assert arrivals[-1] == pytest.approx(20.0, rel=0.1)


# ---- figures


def sample(**values: object) -> Sample:
    return replace(Sample(200, 0.0, 1.0, ttft_s=0.1, gaps_s=(0.02, 0.03), tokens=3), **values)


def test_a_summary_reads_only_complete_answers() -> None:
    samples = [
        sample(),
        sample(ttft_s=0.3, gaps_s=(0.01, 0.06), sent_at=1.0, ended_at=2.0),
        sample(error="cut", ttft_s=9.0, ended_at=9.0),
        sample(status=503, error="status 503", ttft_s=0.001),
    ]
    summary = summarise(samples, itl_s=0.02)
    assert (summary.requests, summary.errors, summary.refused, summary.tokens) == (4, 1, 1, 6)
    assert summary.tokens_per_s == pytest.approx(3.0)
    assert (summary.ttft_p50_ms, summary.ttft_p99_ms) == pytest.approx((100, 300))
    assert (summary.chunk_delay_p50_ms, summary.chunk_delay_p99_ms) == pytest.approx((0, 40))


def test_a_summary_of_nothing_good_has_no_times() -> None:
    summary = summarise([sample(error="cut")])
    assert (summary.errors, summary.tokens) == (1, 0)
    assert math.isnan(summary.ttft_p50_ms)
    assert math.isnan(summary.tokens_per_s)


@pytest.mark.parametrize(
    ("values", "percent", "expected"), [([3, 1, 2], 50, 2), (range(1, 101), 99, 99), ([7], 1, 7)]
)
def test_percentiles_are_values_that_occurred(
    values: Sequence[float], percent: float, expected: float
) -> None:
    assert percentile(values, percent) == expected


BURN = "import time\nwhile time.process_time() < 0.2: pass\nprint(flush=True)\ninput()"


def test_cpu_time_includes_child_processes() -> None:
    before = cpu_seconds([os.getpid()])[os.getpid()]
    with subprocess.Popen(
        [sys.executable, "-c", BURN], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        used = cpu_seconds([child.pid, os.getpid()])
        child.communicate(b"\n")
    assert 0.15 < used[child.pid] < 5
    assert used[os.getpid()] - before > 0.15
    assert cpu_seconds([os.getpid()])[os.getpid()] - before > 0.15  # the child has ended


def test_this_processs_cpu_time_is_its_own_clocks() -> None:
    clock = time.process_time()
    while time.process_time() < clock + 0.05:
        pass
    assert cpu_seconds([os.getpid()])[os.getpid()] >= time.process_time() - 0.03
