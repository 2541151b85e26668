"""Each alert fires and clears, over the real monitor with a clock of the test's own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest
from support.alert_cases import AFTER_S, CASES, EVERY, USUAL_S, WRONG_S, feed
from support.meter import Meter
from support.records import a_record

from deployments.gateway.monitoring.alerting import Alerting
from deployments.gateway.monitoring.monitor import Measured, Monitor
from serve_app.alerts import Change, rules_of
from serve_app.monitoring.metrics import FIRING
from serve_app.request.record import RequestRecord
from serve_app.settings.alerts import AlertSettings


class World:
    """A monitor and its alerts, at a time of the test's own."""

    def __init__(self, settings: AlertSettings = EVERY, others: Any = None) -> None:
        self.now = 0.0
        self.posted: list[Change] = []
        self.meter = Meter()
        self.monitor = Monitor(["m"], settings, self.meter, others, clock=lambda: self.now)
        self.alerting = Alerting(
            settings,
            self.monitor,
            self.meter,
            lambda change, unix_s: self.posted.append(change),
            clock=lambda: self.now,
            wall=lambda: 1e9 + self.now,
        )

    async def run(
        self,
        seconds: float,
        make: Callable[[], RequestRecord | Mapping[str, Any]] | None,
        each_s: float = 1.0,
    ) -> None:
        """A request every ``each_s`` seconds, alerts judged every 10."""
        until = self.now + seconds
        while self.now < until:
            self.now += each_s
            if make is not None:
                made = make()
                if isinstance(made, RequestRecord):
                    self.monitor.take(made)
                else:
                    feed(self.monitor, made)
            if self.now % 10 < each_s:
                await self.alerting.judge()

    @property
    def firing(self) -> set[str]:
        return {each["rule"] for each in self.alerting.shown()["firing"]}

    def changes(self, rule: str) -> list[bool]:
        return [change.firing for change in self.posted if change.rule.name == rule]


def test_every_rule_is_tried() -> None:
    assert {rule.name for rule in rules_of(EVERY)} == CASES.keys()


@pytest.mark.parametrize("rule", CASES)
async def test_an_alert_fires_and_clears(rule: str) -> None:
    usual, wrong = CASES[rule]
    world = World()
    await world.run(USUAL_S, lambda: usual)
    assert world.firing == set()
    await world.run(WRONG_S, lambda: wrong)
    assert rule in world.firing
    assert world.meter.values[FIRING.name][rule, "m"] == 1.0
    await world.run(AFTER_S, lambda: usual)
    assert rule not in world.firing
    assert world.meter.values[FIRING.name][rule, "m"] == 0.0
    assert world.changes(rule) == [True, False], "it fired once and cleared once"


async def test_when_requests_stop_an_alert_clears() -> None:
    world = World()
    await world.run(100, lambda: a_record(ttft_ms=1200.0))
    assert world.firing == {"ttft_p95"}
    await world.run(500, None)
    assert world.firing == set()
    await world.run(3600, None)
    assert world.alerting.shown()["rules"] == [], "a model without requests keeps no state"


async def test_hits_of_the_cache_do_not_hide_a_slow_engine() -> None:
    world, asked = World(), iter(range(10_000))

    def mixed() -> RequestRecord:
        is_hit = next(asked) % 10 > 0
        return a_record(cache="exact", ttft_ms=3.0) if is_hit else a_record(ttft_ms=2000.0)

    await world.run(290, mixed)
    assert "ttft_p95" in world.firing


async def test_fewer_hits_are_no_rise_of_the_latency() -> None:
    world = World(AlertSettings(hit_rate_drop=None))
    await world.run(USUAL_S, lambda: a_record(cache="exact", ttft_ms=30.0))
    await world.run(WRONG_S, lambda: a_record(ttft_ms=100.0))
    assert world.firing == set()


async def test_a_peak_that_is_shorter_than_the_hold_fires_nothing() -> None:
    world = World(AlertSettings(hold_s=400.0))  # a peak is in the window of five minutes for as long as that
    await world.run(400, a_record)
    await world.run(20, lambda: a_record(status=503, error="no_replica"))
    await world.run(700, a_record)
    assert world.posted == []


async def test_a_value_near_its_threshold_does_not_flap() -> None:
    slow = True

    def near() -> RequestRecord:
        return a_record(ttft_ms=1030.0 if slow else 960.0)

    world = World()
    for _ in range(12):  # hours of a p95 that crosses the threshold, and never gets below 0.9 of it
        await world.run(600, near)
        slow = not slow
    assert world.changes("ttft_p95") == [True]


@pytest.mark.parametrize("rule", ["ttft_p95", "ttft_p99", "error_share", "hit_rate_drop", "ttft_p50_rise"])
async def test_a_few_requests_are_no_reason(rule: str) -> None:
    usual, wrong = CASES[rule]
    world = World()
    await world.run(1800, lambda: a_record(**usual), each_s=60.0)
    await world.run(600, lambda: a_record(**wrong), each_s=30.0)
    assert rule not in world.firing


async def test_the_first_half_hour_of_much_use_is_no_spike() -> None:
    world = World()
    await world.run(1700, lambda: a_record(prompt=30_000, output=10_000))
    assert "token_spike" not in world.firing


async def test_a_change_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    with caplog.at_level(logging.INFO, "ray.serve"):
        await world.run(290, lambda: a_record(ttft_ms=1200.0))
        await world.run(600, a_record)
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split(":")[0] for line in lines] == [
        "alert ttft_p95 of m fires",
        "alert ttft_p95 of m has cleared",
    ]
    (fired, cleared) = [record.levelno for record in caplog.records]
    assert (fired, cleared) == (logging.WARNING, logging.INFO)


async def test_alerts_judge_all_gateways_and_one_speaks_for_them() -> None:
    slow, silent = World(), World()

    async def all_of_them() -> list[Measured]:
        return [slow.monitor.measured(), silent.monitor.measured()]

    one, other = World(others=all_of_them), World(others=all_of_them)
    slow.now = 0.0
    for world in (one, other):
        for _ in range(30):
            slow.monitor.take(a_record(ttft_ms=1200.0))
        await world.run(100, None)
        assert "ttft_p95" in world.firing
    together = await one.monitor.together()
    assert together.gateways == 3
    assert together.figures.histogram("5m", "m", "ttft").count == 60


async def test_of_two_gateways_exactly_one_leads() -> None:
    worlds: list[World] = []

    async def all_of_them() -> list[Measured]:
        return [world.monitor.measured() for world in worlds]

    worlds += [World(others=all_of_them), World(others=all_of_them)]
    assert sorted([(await world.monitor.together()).leads for world in worlds]) == [False, True]


async def test_the_oldest_leads_so_that_a_new_gateway_repeats_nothing() -> None:
    worlds: list[World] = []

    async def all_of_them() -> list[Measured]:
        return [world.monitor.measured() for world in worlds]

    worlds += [World(others=all_of_them) for _ in range(5)]
    leads = [(await world.monitor.together()).leads for world in worlds]
    assert leads == [True, False, False, False, False]


async def test_a_gateway_that_begins_to_lead_repeats_what_fires() -> None:
    present: list[Measured] = []

    async def others() -> list[Measured]:
        return present

    old, new = World(others=others), World(others=others)
    present[:] = [old.monitor.measured(), new.monitor.measured()]
    slow = partial(a_record, ttft_ms=5000.0)
    await new.run(200, slow)
    assert "ttft_p95" in new.firing
    assert new.posted == [], "the older one speaks"
    present[:] = [new.monitor.measured()]  # it has ended, perhaps before it saw the alert
    await new.run(10, slow)
    assert new.changes("ttft_p95") == [True]
    await new.run(60, slow)
    assert new.changes("ttft_p95") == [True], "once is enough"


async def test_no_answer_at_all_does_not_make_another_gateway_speak() -> None:
    answers: list[Measured] = []

    async def others() -> list[Measured]:
        return answers

    old, new = World(others=others), World(others=others)
    answers[:] = [old.monitor.measured(), new.monitor.measured()]
    assert not (await new.monitor.together()).leads
    answers.clear()
    assert not (await new.monitor.together()).leads
    assert (await old.monitor.together()).leads


async def test_a_rule_that_is_turned_off_never_fires() -> None:
    off = AlertSettings(ttft_p95_ms=None, ttft_p99_ms=None)
    world = World(off)
    await world.run(290, lambda: a_record(ttft_ms=9000.0))
    assert world.firing == set()
    assert World(AlertSettings(enabled=False)).alerting.shown()["rules"] == []


async def test_ten_thousand_models_and_tenants_make_no_labels() -> None:
    world = World()
    for number in range(10_000):
        world.monitor.take(a_record(model=f"m{number}", tenant=f"t{number}", status=404, error="x"))
    await world.alerting.judge()
    for metric, labels in world.meter.labels.items():
        assert len(labels) <= max(12, len(CASES)), metric
    assert ("other", "client_error") in world.meter.labels["promptly_requests"]
