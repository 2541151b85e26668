"""Where a request's time went, as its client, its record and its engine say it."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import Any

import pytest
from sim_engine import SimSettings
from support.gateway import Answered, Faults, Running, gateway
from support.graph import eventually

from serve_app.request.record import RequestRecord

SIM = SimSettings(first_token_ms=40, itl_ms=5, tokens=8, prompt_tokens_details=True, per_request_metrics=True)
USAGE = {"stream_options": {"include_usage": True}}
DEBUG = {"x-debug-timing": "1"}
ENGINE = ["engine-queue", "prefill", "decode"]
STEP = re.compile(r"([a-z-]+);dur=([0-9.]+)")


def split(timing: str) -> dict[str, float]:
    return {name: float(duration) for name, duration in STEP.findall(timing)}


def comment_of(answer: Answered) -> dict[str, float]:
    """The last event, which must be a comment behind ``[DONE]``."""
    *_, done, comment, end = answer.body.split(b"\n\n")
    assert (done, end) == (b"data: [DONE]", b"")
    assert comment.startswith(b": server-timing: ")
    return split(comment.decode())


async def the_record(records: list[RequestRecord]) -> RequestRecord:
    async def there() -> bool:
        return any(record.model for record in records)

    assert await eventually(there, within_s=5)
    return next(record for record in records if record.model)


async def test_the_engines_own_part_is_in_the_record() -> None:
    records: list[RequestRecord] = []
    async with gateway(SIM, sinks=[records.append]) as running:
        answer = await running.post("hello", stream=True)
        record = await the_record(records)
    steps = {step.name: step for step in record.steps}
    assert set(ENGINE) <= steps.keys()
    assert 35 <= steps["prefill"].duration_ms <= steps["upstream-ttft"].duration_ms
    assert steps["decode"].duration_ms >= 30
    first_byte = steps["upstream-ttft"].offset_ms + steps["upstream-ttft"].duration_ms
    assert steps["prefill"].offset_ms + steps["prefill"].duration_ms == pytest.approx(first_byte, abs=0.01)
    assert record.tokens.output == 9
    assert record.tokens.cached == 0
    assert record.finish_reason == "stop"
    assert record.ttft_ms is not None
    assert record.itl_ms == pytest.approx((record.total_ms - record.ttft_ms) / 8)
    assert record.itl_ms > 4
    assert b"metrics" not in answer.body
    assert b"usage" not in answer.body


async def test_a_whole_answer_tells_the_same_and_shows_the_split() -> None:
    records: list[RequestRecord] = []
    async with gateway(SIM, sinks=[records.append]) as running:
        answer = await running.post("hello")
        record = await the_record(records)
    assert answer.json["metrics"] is None
    assert answer.json["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
    assert record.tokens.output == answer.json["usage"]["completion_tokens"]
    timing = split(answer.headers["server-timing"])
    assert {"admit", "route", "upstream-ttft", "upstream", *ENGINE, "overhead", "total"} <= timing.keys()
    assert timing["total"] == pytest.approx(
        timing["overhead"] + timing["upstream-ttft"] + timing["upstream"], abs=0.05
    )
    assert timing["total"] <= record.total_ms
    assert record.ttft_ms is None


@pytest.mark.parametrize("fields", [{}, USAGE])
async def test_a_stream_tells_the_split_at_its_end_to_who_asks(fields: dict[str, Any]) -> None:
    async with gateway(SIM) as running:
        plain = await running.post("hello", stream=True, **fields)
        asked = await running.post("hello", DEBUG, stream=True, **fields)
    assert plain.body.endswith(b"data: [DONE]\n\n")
    timing = comment_of(asked)
    assert {"upstream-ttft", "upstream", *ENGINE, "overhead", "total"} <= timing.keys()
    assert timing["overhead"] < timing["upstream"]
    assert (b'"metrics":{' in asked.body) == bool(fields)
    assert b'"metrics"' not in plain.body
    assert (b'"usage"' in plain.body) == (b'"usage"' in asked.body) == bool(fields)


async def test_private_steps_and_what_would_reveal_them_are_for_those_who_may_see() -> None:
    async with gateway(SIM, tenants=("a",), rights={"b": {"debug_timing": True}}) as running:
        answer = await running.post("hello", running.headers("a") | DEBUG, stream=True)
    timing = comment_of(answer)
    assert {"upstream-ttft", "overhead"} <= timing.keys()
    assert "total" not in timing


async def test_an_engine_that_tells_nothing_leaves_nothing_wrong() -> None:
    records: list[RequestRecord] = []
    async with gateway(SimSettings(itl_ms=1, tokens=3), sinks=[records.append]) as running:
        await running.post("hello", stream=True)
        record = await the_record(records)
    assert (record.tokens.prompt is not None, record.tokens.output) == (True, 4)
    assert (record.tokens.cached, record.tokens.accepted) == (None, None)
    assert not set(ENGINE) & {step.name for step in record.steps}


async def test_a_vendor_is_not_asked_for_usage_that_no_one_wants() -> None:
    records: list[RequestRecord] = []
    async with gateway(
        SimSettings(itl_ms=1, tokens=3, keep_bodies=4), upstream={"kind": "openai"}, sinks=[records.append]
    ) as running:
        await running.post("hello", stream=True)
        record = await the_record(records)
    assert record.tokens.output is None
    assert record.finish_reason == "stop"
    assert record.itl_ms is None


async def test_the_parts_are_what_a_client_measures() -> None:
    """The clock of another process; the bound is that of ``make bench``, generous for a busy machine."""
    records: list[RequestRecord] = []
    slow = SimSettings(first_token_ms=300, itl_ms=10, tokens=20)
    async with gateway(slow, sinks=[records.append]) as running:
        await warm(running)
        records.clear()
        began = time.perf_counter()
        await running.post("hello", stream=True)
        measured_ms = (time.perf_counter() - began) * 1000
        record = await the_record(records)
    assert record.upstream_ms + record.overhead_ms == pytest.approx(measured_ms, rel=0.1)


async def warm(running: Running) -> None:
    await running.post("warm", stream=True, max_tokens=1)


async def test_a_stream_that_is_cut_tells_where_its_time_went_too() -> None:
    limits = {"between_tokens_timeout_s": 0.2}
    async with gateway(SIM, limits=limits) as running:
        await running.engines[0].set_faults(Faults(hang_after=2))
        asked = await running.post("hello", DEBUG, stream=True)
        plain = await running.post("hello", stream=True)
    *_, error, comment, end = asked.body.split(b"\n\n")
    assert error.startswith(b'data: {"error"')
    assert end == b""
    assert {"upstream-ttft", "upstream", "overhead"} <= split(comment.decode()).keys()
    assert plain.cut["code"] == "upstream_stalled"
    assert b"server-timing" not in plain.body


async def test_each_gap_between_the_pieces_of_a_stream_is_measured() -> None:
    async with gateway(replace(SIM, itl_ms=20)) as running:
        await running.post("whole")
        await running.post("in pieces", stream=True)

        async def itl() -> dict[str, float]:
            windows = (await running.get("/admin/latency"))["windows"]
            outcomes = windows["1m"]["models"].get("all", {}).get("outcomes", {})
            found: dict[str, float] = outcomes.get("answered", {}).get("itl", {})
            return found

        async def is_measured() -> bool:
            return bool(await itl())

        assert await eventually(is_measured, within_s=5)
        found = await itl()
    assert 8 <= found["count"] <= 10, "nine tokens, and what ends the stream"
    assert found["p50"] >= 15
