"""Spans that are held until a gateway keeps their request, and what then reaches a real OTLP receiver."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.collector import Collector, collecting

from deployments.platform.held_spans import MOST_HELD
from deployments.platform.telemetry import CallTracer, call_tracer
from serve_app.monitoring.kept_traces import span_key

TRACE = 0x0AF7651916CD43DD8448EB211C80319C
LEFT_OUT, SAMPLED = "00", "01"


def parent(request: int, flags: str = LEFT_OUT) -> str:
    return f"00-{span_key(TRACE, request)}-{flags}"


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        yield collector


@pytest.fixture
def tracer(collector: Collector) -> CallTracer:
    made = call_tracer("cache")
    assert made is not None
    return made


def test_of_a_trace_with_many_requests_only_the_kept_one_s_spans_are_sent(
    collector: Collector, tracer: CallTracer
) -> None:
    for request in (1, 2, 3):
        with tracer.span("look_up", parent(request)):
            pass
    tracer.send_held([span_key(TRACE, 2)])
    tracer.shut_down()
    (span,) = collector.spans
    assert (span.name, span.parent_span_id.hex()) == ("cache.look_up", f"{2:016x}")
    assert span.trace_id.hex() == f"{TRACE:032x}"
    assert span.start_time_unix_nano <= span.end_time_unix_nano


def test_a_call_that_ends_after_its_request_is_sent_too(collector: Collector, tracer: CallTracer) -> None:
    with tracer.span("look_up", parent(1)):
        tracer.send_held([span_key(TRACE, 1)])
    tracer.shut_down()
    assert len(collector.spans) == 1


def test_what_the_head_samples_is_sent_once(collector: Collector, tracer: CallTracer) -> None:
    with tracer.span("look_up", parent(1, SAMPLED)):
        pass
    tracer.send_held([span_key(TRACE, 1)])
    tracer.shut_down()
    assert len(collector.spans) == 1


def test_a_kept_span_says_how_the_call_failed_and_nothing_of_its_text(
    collector: Collector, tracer: CallTracer
) -> None:
    with pytest.raises(ValueError, match="asked"), tracer.span("look_up", parent(1)):
        raise ValueError("what was asked")
    tracer.send_held([span_key(TRACE, 1)])
    tracer.shut_down()
    (span,) = collector.spans
    assert [(each.key, each.value.string_value) for each in span.attributes] == [("error.type", "ValueError")]
    assert "what was asked" not in str(span)


def test_what_is_held_is_bounded_and_the_oldest_goes_first(collector: Collector, tracer: CallTracer) -> None:
    for request in range(1, MOST_HELD + 3):
        with tracer.span("look_up", parent(request)):
            pass
    tracer.send_held(span_key(TRACE, request) for request in (1, 2, 3))
    tracer.shut_down()
    assert [span.parent_span_id.hex() for span in collector.spans] == [f"{3:016x}"]
