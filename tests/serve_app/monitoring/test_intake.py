"""What counts, under which names and as which outcome."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from support.records import a_record

from serve_app.monitoring.intake import Outcome, sample_of
from serve_app.request.gaps import Gaps
from serve_app.request.record import StepTime

NAMES = {"m"}


@pytest.mark.parametrize(
    ("changed", "outcome"),
    [
        ({}, "answered"),
        ({"cache": "exact"}, "cached"),
        ({"cache": "joined"}, "cached"),
        ({"status": 503, "error": "no_replica"}, "failed"),
        ({"error": "upstream_stalled"}, "failed"),
        ({"status": 400, "error": "invalid_json"}, "client_error"),
        ({"status": 429, "error": "over_capacity"}, "refused"),
        ({"error": "over_capacity", "error_status": 429}, "refused"),
        ({"error": "slow_reader", "error_status": 408}, "client_error"),
        ({"error": "context_length_exceeded", "error_status": 400}, "client_error"),
        ({"error": "upstream_failed", "error_status": 502}, "failed"),
        ({"status": 504, "error": "deadline_exceeded", "error_status": 504}, "failed"),
        ({"status": 504, "error": "deadline_exceeded", "chose_deadline": True}, "client_error"),
        ({"status": 504, "error": "first_token_timeout", "chose_deadline": True}, "failed"),
        ({"client_gone": True}, "gone"),
        ({"status": 0, "client_gone": True}, "gone"),
    ],
)
def test_each_request_has_one_outcome(changed: dict[str, Any], outcome: str) -> None:
    sample = sample_of(a_record(**changed), NAMES)
    assert sample is not None
    assert sample.outcome == outcome
    assert outcome in get_args(Outcome)


@pytest.mark.parametrize(
    "changed",
    [
        {"method": "GET", "route": "/v1/models"},
        {"route": "/admin/entries"},
        {"route": "/v1/messages/count_tokens"},
        {"route": "/tokenize"},
        {"route": "/v1/responses/{id}/cancel", "model": None},
    ],
)
def test_what_asks_nothing_of_a_model_is_not_counted(changed: dict[str, Any]) -> None:
    assert sample_of(a_record(**changed), NAMES) is None


@pytest.mark.parametrize("model", ["made-up", None])
def test_a_name_that_is_not_served_is_counted_as_other(model: str | None) -> None:
    sample = sample_of(a_record(model=model, status=404, error="model_not_found"), NAMES)
    assert sample is not None
    assert sample.model == "other"


def test_what_was_not_measured_is_left_out() -> None:
    sample = sample_of(a_record(ttft_ms=None, itl_ms=None), NAMES)
    assert sample is not None
    assert dict(sample.durations) == {"e2e": 100.0, "overhead": 5.0}


@pytest.mark.parametrize(("cache", "counts"), [("miss", True), ("joined", False)])
def test_the_gaps_of_a_joined_stream_are_no_engines(cache: str, counts: bool) -> None:
    sample = sample_of(a_record(cache=cache, gaps=Gaps()), NAMES)
    assert sample is not None
    assert (sample.gaps is not None) is counts


def test_waiting_in_the_queue_is_a_measure_of_its_own() -> None:
    sample = sample_of(a_record(steps=(StepTime("queue", 1.0, 4.0), StepTime("queue", 9.0, 2.0))), NAMES)
    assert sample is not None
    assert dict(sample.durations)["queue"] == 6.0


def test_refused_requests_have_no_latency() -> None:
    sample = sample_of(a_record(status=429), NAMES)
    assert sample is not None
    assert sample.durations == ()


@pytest.mark.parametrize(
    ("status", "error", "outcome"),
    [(101, None, "answered"), (408, "idle_timeout", "client_error"), (502, "upstream_failed", "failed")],
)
def test_a_websocket_is_counted_without_its_length(status: int, error: str | None, outcome: str) -> None:
    record = a_record(method="GET", endpoint="realtime", status=status, error=error, cache=None)
    sample = sample_of(record, NAMES)
    assert sample is not None
    assert (sample.outcome, sample.durations) == (outcome, ())
