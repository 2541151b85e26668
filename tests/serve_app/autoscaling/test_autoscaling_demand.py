"""A gateway counts what wanted an engine: once, and not what the cache answered."""

from __future__ import annotations

import pytest

from serve_app.autoscaling import Demand, GatewayLoad, GatewayReports
from serve_app.autoscaling.demand import FORGET_S, SETTLED_S


@pytest.fixture
def demand() -> Demand:
    return Demand("g", objective_s=1.0)


def counted(demand: Demand, now: float = 0.0) -> tuple[float, float]:
    report = demand.report(0, 0, now)
    return report.arrived, report.arrived_tokens


def test_an_answered_request_counts_once(demand: Demand) -> None:
    asked = demand.came(100, 0.0, cold=False)
    demand.report(0, 0, 5.0)
    demand.began(asked, 0.2)
    demand.began(asked, 0.2)
    demand.failed(asked)
    demand.withdrew(asked, 9.0)
    report = demand.report(0, 0, 9.0)
    assert (report.arrived, report.arrived_tokens, report.first_tokens) == (1, 100, 1)


def test_a_request_that_still_waits_is_counted(demand: Demand) -> None:
    demand.came(100, 0.0, cold=False)
    assert counted(demand, SETTLED_S / 2) == (0, 0)
    assert counted(demand, SETTLED_S) == (1, 100)


def test_a_request_that_the_cache_answered_meanwhile_is_not_counted(demand: Demand) -> None:
    asked = demand.came(100, 0.0, cold=False)
    demand.withdrew(asked, 0.05)
    assert counted(demand, 60.0) == (0, 0)


def test_a_client_that_loses_patience_has_come(demand: Demand) -> None:
    asked = demand.came(100, 0.0, cold=False)
    demand.withdrew(asked, 4.0)
    assert counted(demand) == (1, 100)


def test_a_refused_request_has_come(demand: Demand) -> None:
    demand.failed(demand.came(100, 0.0, cold=False))
    assert counted(demand) == (1, 100)


def test_what_an_upstream_answers_is_nobodys_to_scale_for(demand: Demand) -> None:
    asked = demand.came(100, 0.0, cold=False)
    demand.went_elsewhere(asked)
    demand.began(asked, 9.0)
    report = demand.report(0, 0, 60.0)
    assert (report.arrived, report.first_tokens) == (0, 0)


def test_first_tokens_beyond_the_objective_are_late(demand: Demand) -> None:
    for ttft_s in (0.5, 1.0, 1.1, 7.0):
        demand.began(demand.came(1, 0.0, cold=False), ttft_s)
    report = demand.report(0, 0, 0.0)
    assert (report.first_tokens, report.late_first_tokens) == (4, 2)


def test_only_streams_have_a_first_token(demand: Demand) -> None:
    demand.began(demand.came(1, 0.0, cold=False), None)
    report = demand.report(0, 0, 0.0)
    assert (report.arrived, report.first_tokens) == (1, 0)


def test_who_waited_for_a_start_is_not_late(demand: Demand) -> None:
    demand.began(demand.came(1, 0.0, cold=True), 60.0)
    report = demand.report(0, 0, 0.0)
    assert (report.arrived, report.first_tokens, report.late_first_tokens) == (1, 0, 0)


def test_reports_are_numbered_and_name_their_gateway(demand: Demand) -> None:
    assert demand.report(2, 30, 0.0) == GatewayLoad("g", 1, queued=2, queued_tokens=30)
    assert demand.report(0, 0, 0.0).number == 2


def test_a_replica_passes_on_the_newest_of_each_gateway_until_it_falls_silent() -> None:
    reports = GatewayReports()
    reports.record(GatewayLoad("a", 1), 0.0)
    reports.record(GatewayLoad("b", 1), 5.0)
    reports.record(GatewayLoad("a", 2), 6.0)
    assert {(load.gateway, load.number) for load in reports.newest(6.0)} == {("a", 2), ("b", 1)}
    assert [load.gateway for load in reports.newest(5.0 + FORGET_S)] == ["a"]
