"""Which traces are kept whatever the head's sampling says."""

from __future__ import annotations

import random
from typing import Any

import pytest
from support.records import a_record

from serve_app.monitoring.kept_traces import FAILURE, SLOW, WINDOW_S, KeptTraces
from serve_app.settings import TraceSettings


def kept(**settings: Any) -> KeptTraces:
    return KeptTraces(TraceSettings(**settings))


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"status": 503, "error": "no_replica"}, FAILURE),
        ({"error": "upstream_stalled"}, FAILURE),
        ({"status": 500, "error": "internal_error", "model": None, "route": "/admin/cache"}, FAILURE),
        ({"status": 429, "error": "over_capacity"}, None),
        ({"status": 401, "error": "invalid_api_key"}, None),
        ({}, None),
    ],
)
def test_failures_are_kept_and_faults_of_clients_are_not(changed: dict[str, Any], reason: str | None) -> None:
    assert kept(keep_slowest=0).reason(a_record(**changed), 0.0) == reason
    assert kept(keep_slowest=0, keep_failures=False).reason(a_record(**changed), 0.0) is None


def test_the_slowest_of_each_window_are_among_those_kept_and_not_many_more() -> None:
    times = [random.Random(7).uniform(1, 1000) for _ in range(5000)]
    policy = kept(keep_slowest=10)
    for began in (0.0, WINDOW_S):
        found = [each for each in times if policy.reason(a_record(total_ms=each), began + 1) == SLOW]
        assert set(sorted(times)[-10:]) <= set(found)
        assert len(found) < 150
        assert policy.reason(a_record(total_ms=0.1), began + 2) is None


@pytest.mark.parametrize("changed", [{"endpoint": "realtime"}, {"model": None, "route": "/health"}])
def test_what_lasts_as_long_as_its_client_and_what_asks_no_model_is_not_slow(changed: dict[str, Any]) -> None:
    assert kept().reason(a_record(total_ms=1e6, **changed), 0.0) is None
