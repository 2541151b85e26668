"""Finished requests become rows of usage."""

from __future__ import annotations

from typing import Any

import pytest
from support.records import a_record

from serve_app.metering import DAY_NS, Metering
from serve_app.openai.usage import TokenCounts
from serve_app.request.record import RequestRecord, StepTime
from serve_app.usage.prices import Price, Prices
from serve_app.usage.rows import Counts, UsageRow

PRICES = Prices({"m": Price(input=1.0, output=10.0, device_hour=3.6, devices=2)})
DAY = 20_000 * DAY_NS


def metering(max_rows: int = 100, running: int | None = 4) -> Metering:
    return Metering(("m", "alias"), PRICES, lambda model, member: running, max_rows)


def record(prompt: int = 100, output: int = 50, **changed: Any) -> RequestRecord:
    return a_record(prompt, output, **{"start_unix_ns": DAY, "key_id": "k", "user": "u", **changed})


def only(rows: list[UsageRow]) -> UsageRow:
    (row,) = rows
    return row


def counted(**changed: Any) -> Counts:
    usage = metering()
    usage.take(record(**changed))
    return only(usage.drain(10)).counts


def test_a_row_is_of_a_key_a_user_a_tenant_a_model_and_a_day() -> None:
    usage = metering()
    for each in (record(), record(start_unix_ns=DAY + DAY_NS - 1), record(start_unix_ns=DAY + DAY_NS)):
        usage.take(each)
    first, second = usage.drain(10)
    assert (first.day, first.tenant, first.key, first.user, first.model) == (
        "2024-10-04",
        "default",
        "k",
        "u",
        "m",
    )
    assert (first.counts.requests, second.day, second.counts.requests) == (2, "2024-10-05", 1)
    assert usage.drain(10) == []


def test_tokens_cost_what_the_model_costs() -> None:
    counts = counted(tokens=TokenCounts(prompt=1000, output=100, cached=600))
    assert (counts.tokens_in, counts.tokens_out, counts.tokens_cached) == (1000, 100, 600)
    assert counts.cost == pytest.approx(0.002)


def test_gpu_seconds_are_the_requests_part_of_its_replica() -> None:
    steps = (
        StepTime("engine-queue", 0, 500.0),
        StepTime("prefill", 500, 200.0),
        StepTime("decode", 700, 800.0),
    )
    counts = counted(steps=steps, upstream_ms=1600.0)
    assert counts.gpu_s == pytest.approx(1.0 * 2 / 4)
    assert counts.gpu_cost == pytest.approx(0.5 * 3.6 / 3600)


def test_without_the_engines_own_times_the_time_at_the_member_counts() -> None:
    assert counted(upstream_ms=2000.0).gpu_s == pytest.approx(1.0)


def test_an_upstream_has_no_devices_of_ours() -> None:
    usage = metering(running=None)
    usage.take(record())
    assert only(usage.drain(10)).counts.gpu_s == 0.0


@pytest.mark.parametrize("cache", ["exact", "semantic", "joined"])
def test_what_the_cache_answers_costs_nothing_and_saves_its_price(cache: str) -> None:
    counts = counted(cache=cache, prompt=1000, output=100, member=None)
    assert (counts.cache_hits, counts.tokens_saved) == (1, 1100)
    assert counts.saved == pytest.approx(0.002)
    assert (counts.tokens_in, counts.tokens_out, counts.cost, counts.gpu_s) == (0, 0, 0.0, 0.0)


@pytest.mark.parametrize("status", [402, 403, 429])
def test_refused_requests_are_counted_as_such(status: int) -> None:
    counts = counted(status=status, error="budget", error_status=status, model=None, prompt=0, output=0)
    assert (counts.requests, counts.refused, counts.failed) == (1, 1, 0)


def test_failures_are_counted_as_such() -> None:
    assert counted(status=503, error="no_replica", error_status=503).failed == 1
    assert counted(status=200, error="upstream_failed", error_status=502).failed == 1
    assert counted(status=400, error="wrong", error_status=400).failed == 0
    assert counted(status=0, error="x", client_gone=True).failed == 0


def test_recordings_count_their_seconds() -> None:
    assert counted(audio_s=12.5, endpoint="audio").audio_s == 12.5


@pytest.mark.parametrize(
    "other",
    [
        {"tenant": None},
        {"method": "GET", "route": "/v1/models", "endpoint": "models"},
        {"route": "/admin/cache"},
        {"model": None},
    ],
)
def test_what_asks_nothing_of_a_model_is_no_usage(other: dict[str, Any]) -> None:
    usage = metering()
    usage.take(record(**other))
    assert usage.drain(10) == []


def test_names_that_clients_invent_share_a_row() -> None:
    usage = metering()
    for number in range(10):
        usage.take(record(model=f"invented-{number}", error="unknown", error_status=404, status=404))
    assert (only(usage.drain(10)).model) == "other"


def test_a_part_of_the_rows_is_taken_and_the_others_wait() -> None:
    usage = metering()
    for number in range(5):
        usage.take(record(user=f"u{number}"))
    assert [row.user for row in usage.drain(2)] == ["u0", "u1"]
    usage.take(record(user="u2"))
    assert [(row.user, row.counts.requests) for row in usage.drain(9)] == [("u2", 2), ("u3", 1), ("u4", 1)]


def test_beyond_the_bound_keys_share_a_row_and_then_requests_are_dropped() -> None:
    usage = metering(max_rows=2)
    for number in range(5):
        usage.take(record(key_id=f"k{number}"))
    assert [(row.key, row.counts.requests) for row in usage.drain(9)] == [("k0", 1), ("k1", 1), ("other", 3)]
    for number in range(9):
        usage.take(record(tenant=f"t{number}"))
    assert usage.dropped == 5
    assert sum(row.counts.requests for row in usage.drain(9)) == 4


def test_what_was_estimated_for_a_client_that_left_is_counted() -> None:
    left = TokenCounts(prompt=1000, output=100)
    counts = counted(tokens=TokenCounts(), estimated=left, client_gone=True)
    assert (counts.tokens_in, counts.tokens_out, counts.failed) == (1000, 100, 0)
    assert counts.cost == pytest.approx(0.002)


def test_what_an_answer_of_the_cache_costs_and_saves_is_its_whole_price() -> None:
    usage = Metering(("m",), PRICES, lambda model, member: None, 100, cached_rate=0.25)
    usage.take(record(cache="exact", tokens=TokenCounts(prompt=1000, output=100)))
    counts = only(usage.drain(10)).counts
    assert (counts.cost, counts.saved) == (pytest.approx(0.0005), pytest.approx(0.0015))
    assert (counts.tokens_in, counts.tokens_saved, counts.cache_hits) == (0, 1100, 1)
