"""The record of a finished request: its parts add up, and it is right where steps overlap."""

from __future__ import annotations

import pytest

from serve_app.openai.usage import Measured, TokenCounts
from serve_app.request.record import (
    Facts,
    RequestRecord,
    StepTime,
    record_of,
    trace_id_of,
)
from serve_app.request.timing import Timeline


class Clock:
    """Nanoseconds that pass only when told to."""

    def __init__(self) -> None:
        self.now_ns = 5_000_000

    def __call__(self) -> int:
        return self.now_ns

    def advance(self, milliseconds: float) -> None:
        self.now_ns += round(milliseconds * 1e6)


def recorded(timeline: Timeline, facts: Facts) -> RequestRecord:
    return record_of(
        facts,
        timeline,
        request_id="r",
        trace_id=None,
        method="POST",
        status=200,
        member="m",
        similarity=None,
        score=None,
    )


def streamed(clock: Clock) -> Timeline:
    """1 ms of admission, 100 ms to the first byte, 90 ms of decoding; 0.5 ms between two steps each."""
    timeline = Timeline(clock, unix_ns=1_700_000_000_000_000_000)
    for name, milliseconds in (("admit", 1.0), ("upstream-ttft", 100.0)):
        with timeline.step(name):
            clock.advance(milliseconds)
        clock.advance(0.5)
    timeline.first_byte_ns = clock()
    with timeline.step("upstream"):
        clock.advance(90)
    clock.advance(0.5)
    timeline.last_byte_ns = clock()
    return timeline


def test_the_parts_of_a_stream_add_up_to_its_whole_time() -> None:
    clock = Clock()
    timeline = streamed(clock)
    clock.advance(1000)  # what happens after the last byte is no part of the request
    record = recorded(timeline, Facts(streamed=True, measured=Measured(TokenCounts(output=10))))
    assert record.start_unix_ns == 1_700_000_000_000_000_000
    assert record.total_ms == pytest.approx(192.5)
    assert record.upstream_ms == pytest.approx(190)
    assert record.overhead_ms == pytest.approx(2.5)
    assert record.ttft_ms == pytest.approx(102)
    assert record.itl_ms == pytest.approx(90.5 / 9)
    assert record.upstream_ms + record.overhead_ms == pytest.approx(record.total_ms)
    assert record.steps[1] == StepTime("upstream-ttft", 1.5, 100.0)


def test_attempts_that_overlap_are_counted_once() -> None:
    clock = Clock()
    timeline = Timeline(clock)
    first = clock()
    clock.advance(10)
    second = clock()
    clock.advance(20)
    timeline.add("upstream-ttft", second)
    timeline.add("upstream-failed", first)
    clock.advance(5)
    record = recorded(timeline, Facts())
    assert record.upstream_ms == pytest.approx(30)
    assert record.overhead_ms == pytest.approx(5)
    assert [step.name for step in record.steps] == ["upstream-failed", "upstream-ttft"]


def test_an_attempt_that_outlives_the_answer_is_cut_at_its_end() -> None:
    clock = Clock()
    timeline = Timeline(clock)
    began = clock()
    clock.advance(10)
    timeline.last_byte_ns = clock()
    clock.advance(50)
    timeline.add("upstream", began)
    record = recorded(timeline, Facts())
    assert (record.total_ms, record.upstream_ms, record.overhead_ms) == (10, 10, 0)


def test_a_whole_answer_has_no_time_to_first_token() -> None:
    record = recorded(streamed(Clock()), Facts(measured=Measured(TokenCounts(output=10))))
    assert (record.ttft_ms, record.itl_ms) == (None, None)


@pytest.mark.parametrize("tokens", [None, 0, 1])
def test_there_is_no_time_between_fewer_than_two_tokens(tokens: int | None) -> None:
    record = recorded(streamed(Clock()), Facts(streamed=True, measured=Measured(TokenCounts(output=tokens))))
    assert record.itl_ms is None


@pytest.mark.parametrize(
    ("header", "trace_id"),
    [
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "0af7651916cd43dd8448eb211c80319c"),
        ("00-" + "0" * 32 + "-b7ad6b7169203331-01", None),
        ("00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01", None),
        ("a\nb", None),
        (None, None),
    ],
)
def test_only_a_w3c_trace_id_is_taken(header: str | None, trace_id: str | None) -> None:
    assert trace_id_of(header) == trace_id


@pytest.mark.parametrize(
    ("error", "kept"),
    [("no_replica", "no_replica"), ("a text of a prompt", "upstream_error"), ("x" * 500, "upstream_error")],
)
def test_an_error_is_a_code_and_no_text(error: str, kept: str) -> None:
    assert recorded(streamed(Clock()), Facts(error=error)).error == kept
