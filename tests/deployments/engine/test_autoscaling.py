"""Serve asks, and the policy answers by what engines and gateways report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import cloudpickle
import pytest
from ray.serve._private.common import DeploymentID, ReplicaID, TimeStampedValue
from ray.serve.autoscaling_policy import _apply_autoscaling_config
from ray.serve.config import AutoscalingContext

from deployments.engine.autoscaling import PERIOD_S, ObjectivePolicy, autoscaling_config
from serve_app.autoscaling import Decision, GatewayLoad, Reason, ReplicaLoad
from serve_app.autoscaling.changes import ScalingChange
from serve_app.autoscaling.metrics import engine_metrics
from serve_app.settings import AutoscalingSettings

ENGINE = DeploymentID("Engine:m", "app")
IDLE = ReplicaLoad(capacity=8, prefill_tokens_per_s=1000.0, service_s=2.0)
ZERO = AutoscalingSettings(min=0, max=4, zero_after_s=60.0)
QUICK = AutoscalingSettings(max=8, start_s=10.0)


def policy(settings: AutoscalingSettings) -> ObjectivePolicy:
    """As Serve's controller gets it: by value, and made from its keyword arguments."""
    found = autoscaling_config(settings).policy
    made: ObjectivePolicy = cloudpickle.loads(found.get_serialized_policy_def())(**found.policy_kwargs)
    return made


def seen(
    replicas: Sequence[ReplicaLoad | None],
    target: int | None = None,
    gateways: Sequence[GatewayLoad] = (),
    ongoing: float = 0.0,
    settings: AutoscalingSettings = ZERO,
) -> AutoscalingContext:
    """What Serve's controller passes on. ``None``: a replica that has not reported yet."""
    ids = [ReplicaID(f"r{number}", ENGINE) for number in range(len(replicas))]
    raw: dict[str, dict[ReplicaID, list[TimeStampedValue]]] = {}
    for replica, load in zip(ids, replicas, strict=True):
        for name, value in ({} if load is None else engine_metrics(load, gateways)).items():
            # The newest is last; the ones before it must not count.
            raw.setdefault(name, {})[replica] = [TimeStampedValue(1.0, 1e9), TimeStampedValue(2.0, value)]
    return AutoscalingContext(
        deployment_id=ENGINE,
        deployment_name=ENGINE.name,
        app_name=ENGINE.app_name,
        current_num_replicas=len(replicas),
        target_num_replicas=len(replicas) if target is None else target,
        running_replicas=ids,
        total_num_requests=ongoing,
        total_queued_requests=ongoing,
        aggregated_metrics=None,
        raw_metrics=lambda: raw,
        capacity_adjusted_min_replicas=settings.min,
        capacity_adjusted_max_replicas=settings.max,
        policy_state={},
        last_scale_up_time=None,
        last_scale_down_time=None,
        current_time=0.0,
        config=autoscaling_config(settings),
    )


def gateway(number: int, arrived: float = 0.0, name: str = "g", **changed: Any) -> GatewayLoad:
    return GatewayLoad(name, number, arrived, 100 * arrived, **changed)


def test_a_backlog_at_the_gateways_starts_as_many_as_it_needs_at_once() -> None:
    scaler = policy(QUICK)
    waiting = gateway(1, queued=100, queued_tokens=90_000)
    decision = scaler.decide(seen([IDLE], gateways=[waiting]), 1.0)
    assert decision.replicas >= 3
    assert decision.reason in {Reason.BACKLOG, Reason.FIRST_TOKENS}


def test_a_backlog_at_the_engines_counts_the_same() -> None:
    busy = replace(IDLE, running=8, waiting=92, waiting_tokens=90_000)
    assert policy(QUICK).decide(seen([busy]), 1.0).replicas >= 3


def test_every_replica_passes_the_gateways_on_and_they_count_once() -> None:
    waiting = gateway(1, queued=20, queued_tokens=9_000)
    one = policy(QUICK).decide(seen([IDLE], gateways=[waiting]), 1.0)
    three = policy(QUICK).decide(seen([IDLE] * 3, gateways=[waiting]), 1.0)
    assert three.needed <= one.needed


def test_arrivals_are_the_growth_of_the_gateways_counters() -> None:
    def settled(grows: bool) -> int:
        scaler, total = policy(AutoscalingSettings(max=8, hold_s=0.0)), 1e6
        for second in range(60):
            total += 20 * grows
            load = gateway(second, total)
            decision = scaler.decide(seen([IDLE] * 4, gateways=[load]), float(second))
        return decision.needed

    assert settled(grows=True) >= 3  # 2,000 tokens a second, 1,000 a replica
    assert settled(grows=False) <= 1


def test_traffic_that_the_cache_answers_starts_nothing() -> None:
    """It is in no counter of the gateways, and at no engine."""
    scaler = policy(QUICK)
    for second in range(100):
        decision = scaler.decide(seen([IDLE], gateways=[gateway(second, 500.0)]), float(second))
        assert decision.replicas == 1


def test_replicas_that_start_are_counted_and_not_ordered_again() -> None:
    scaler = policy(QUICK)
    waiting = gateway(1, queued=100, queued_tokens=90_000)
    ordered = scaler.decide(seen([IDLE], gateways=[waiting]), 1.0).replicas
    again = scaler.decide(seen([IDLE], target=ordered, gateways=[waiting]), 1.0 + PERIOD_S)
    assert again.replicas == ordered


def test_between_two_decisions_the_last_one_is_the_answer() -> None:
    scaler = policy(QUICK)
    first = scaler.decide(seen([IDLE]), 1.0)
    waiting = seen([IDLE], gateways=[gateway(1, queued=100, queued_tokens=90_000)])
    assert scaler.decide(waiting, 1.0 + PERIOD_S / 2) is first
    assert scaler.decide(waiting, 1.0 + PERIOD_S).replicas > 1


def test_a_fleet_that_has_changed_is_decided_on_at_once() -> None:
    scaler = policy(ZERO)
    assert scaler.decide(seen([]), 100.0).replicas == 0
    # Serve has started one for a call that found none. It has not reported yet.
    assert scaler.decide(seen([None], target=1), 100.1).replicas == 1


def test_a_replica_that_came_for_a_waiting_call_lives_until_it_is_idle() -> None:
    scaler, now = policy(ZERO), 1000.0
    scaler.decide(seen([]), now - 900)
    scaler.decide(seen([None]), now)
    assert scaler.decide(seen([IDLE]), now + ZERO.zero_after_s - 1).replicas == 1
    decision = scaler.decide(seen([IDLE]), now + ZERO.zero_after_s)
    assert (decision.replicas, decision.reason) == (0, Reason.IDLE)


def test_what_runs_keeps_a_replica_alive() -> None:
    scaler = policy(ZERO)
    for second in range(0, 1000, 10):
        assert scaler.decide(seen([ReplicaLoad(running=1)]), float(second)).replicas == 1


def test_a_counter_that_goes_on_counting_while_there_is_no_replica_is_no_loss() -> None:
    """Reports reach the policy through replicas: at zero there are none."""
    scaler = policy(AutoscalingSettings(min=0, max=8))
    scaler.decide(seen([IDLE], gateways=[gateway(1, 100.0)]), 0.0)
    scaler.decide(seen([], target=0), 400.0)
    decision = scaler.decide(seen([IDLE], gateways=[gateway(400, 130.0)]), 460.0)
    assert 1 <= decision.replicas < 8


def test_serve_wakes_a_fleet_for_a_call_that_waits_and_never_asks_the_policy() -> None:
    def never(context: AutoscalingContext) -> tuple[int, dict[str, Any]]:
        raise AssertionError("Serve decides this by itself")

    assert _apply_autoscaling_config(never)(seen([], target=0, ongoing=1.0))[0] == 1


def test_serve_adds_no_delay_of_its_own() -> None:
    wrapped = _apply_autoscaling_config(policy(QUICK))
    waiting = gateway(1, queued=100, queued_tokens=90_000)
    context = seen([IDLE], gateways=[waiting], settings=QUICK)
    assert wrapped(context)[0] >= 3


@pytest.mark.parametrize("fewer", [(3, 1), (1, 0)])
def test_serve_shrinks_as_soon_as_the_policy_says_so(fewer: tuple[int, int]) -> None:
    before, after = fewer
    wrapped = _apply_autoscaling_config(lambda context: (after, {}))
    assert wrapped(seen([IDLE] * before))[0] == after


def test_serve_gets_the_bounds_and_the_policy_the_rest() -> None:
    settings = AutoscalingSettings(min=2, max=4, ttft_objective_s=0.7, itl_objective_s=0.05)
    config = autoscaling_config(settings)
    assert (config.min_replicas, config.max_replicas) == (2, 4)
    rules = config.policy.policy_kwargs
    assert (rules["min_replicas"], rules["max_replicas"]) == (2, 4)
    assert (rules["ttft_objective_s"], rules["itl_objective_s"]) == (0.7, 0.05)


SLEEPY = AutoscalingSettings(min=1, max=4, sleeping=2, window_s=10.0, hold_s=5.0, start_s=5.0)


class Fleet:
    """Replicas that follow the announcement: one that should sleep reports that it is withdrawn."""

    def __init__(self, replicas: int) -> None:
        self.replicas = replicas
        self.sleepers: list[str] = []
        self.scaler = ObjectivePolicy(
            announce=self.announce, **autoscaling_config(SLEEPY).policy.policy_kwargs
        )
        self.announced: list[list[str]] = []
        self.waking: set[str] = set()

    def announce(self, application: str, deployment: str, replicas: Iterable[str]) -> None:
        assert (application, deployment) == (ENGINE.app_name, ENGINE.name)
        self.sleepers = list(replicas)
        self.announced.append(self.sleepers)

    def decide(self, now: float, **waiting: Any) -> Decision:
        loads: list[ReplicaLoad | None] = [
            replace(
                IDLE,
                running=float(number == 0),  # who has least to do sleeps
                withdrawn=float(f"r{number}" in {*self.sleepers, *self.waking}),
            )
            for number in range(self.replicas)
        ]
        gateways = [gateway(int(now), **waiting)]
        decision = self.scaler.decide(seen(loads, gateways=gateways, settings=SLEEPY), now)
        self.replicas = decision.replicas
        return decision

    def quiet(self, since: float, seconds: int) -> float:
        for second in range(seconds):
            self.decide(since + second)
        return since + seconds


def test_replicas_that_are_not_needed_sleep_and_are_kept() -> None:
    fleet = Fleet(3)
    fleet.quiet(100.0, 60)
    assert fleet.announced[0] == []
    assert (fleet.sleepers, fleet.replicas) == (["r1", "r2"], 3)


def test_more_than_may_sleep_are_stopped() -> None:
    fleet = Fleet(4)
    fleet.quiet(100.0, 60)
    assert (len(fleet.sleepers), fleet.replicas) == (2, 3)


def test_sleepers_are_woken_before_a_replica_is_started() -> None:
    fleet = Fleet(3)
    now = fleet.quiet(100.0, 60)
    decision = fleet.decide(now, queued=30, queued_tokens=20_000)
    assert (decision.wake, fleet.sleepers) == (2, [])
    assert decision.replicas >= 3


def test_one_that_still_wakes_is_counted_and_not_asked_for_again() -> None:
    fleet = Fleet(3)
    now = fleet.quiet(100.0, 60)
    fleet.waking = set(fleet.sleepers)
    first = fleet.decide(now, queued=30, queued_tokens=20_000)
    again = fleet.decide(now + PERIOD_S, queued=30, queued_tokens=20_000)
    assert again.replicas == first.replicas


def test_a_sleeper_that_is_gone_is_forgotten() -> None:
    fleet = Fleet(3)
    now = fleet.quiet(100.0, 60)
    gone = max(fleet.sleepers)
    assert gone == "r2"
    fleet.replicas = 2
    fleet.quiet(now, 60)
    assert gone not in fleet.sleepers
    assert len(fleet.sleepers) == 1


def test_a_new_policy_wakes_all() -> None:
    fleet = Fleet(3)
    fleet.sleepers = ["r1"]
    fleet.decide(100.0)
    assert fleet.announced == [[]]


def test_without_sleeping_replicas_nothing_is_announced() -> None:
    def announce(*_: Any) -> None:
        raise AssertionError("announced")

    scaler = ObjectivePolicy(announce=announce, **autoscaling_config(QUICK).policy.policy_kwargs)
    for second in range(900):
        scaler.decide(seen([IDLE] * 3, settings=QUICK), float(second))


def test_each_change_is_recorded_with_its_reason() -> None:
    kept: list[ScalingChange] = []

    def record(application: str, deployment: str, change: ScalingChange) -> None:
        assert (application, deployment) == (ENGINE.app_name, ENGINE.name)
        kept.append(change)

    scaler = ObjectivePolicy(record=record, **autoscaling_config(QUICK).policy.policy_kwargs)
    scaler.decide(seen([IDLE], settings=QUICK), 100.0)
    assert kept == [], "nothing was changed"
    gateways = [gateway(1, queued=300, queued_tokens=200_000)]
    decision = scaler.decide(seen([IDLE], gateways=gateways, settings=QUICK), 102.0)
    (change,) = kept
    assert (change.before, change.after, change.needed) == (1, decision.replicas, decision.needed)
    assert change.reason == decision.reason.value
    assert decision.replicas > 1
