"""The autoscaling policy of engines. Serve's own counters do not see requests that travel over HTTP.

Serve's controller calls the policy in every round of its loop, ten times a second. The measurements of
engines and gateways reach it as custom metrics (``serve_app.autoscaling.metrics``). All rules are in
``serve_app.autoscaling``; Serve's own delays are 0, because otherwise both delays would add up.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ray.serve.config import AutoscalingConfig, AutoscalingContext, AutoscalingPolicy

from deployments.engine.sleep.announcements import Announce, announce
from deployments.platform.scaling_record import record_change
from serve_app.autoscaling import (
    Autoscaler,
    Decision,
    FleetLoad,
    GatewayLoad,
    Increments,
    ScalingRules,
)
from serve_app.autoscaling.changes import ScalingChange
from serve_app.autoscaling.metrics import gateway_loads, replica_loads
from serve_app.settings import AutoscalingSettings

PERIOD_S = 1.0
"""Between two decisions, unless the fleet changes: metrics arrive no more often."""

METRICS_PERIOD_S = 1.0
"""How often replicas report their metrics; by default Serve would see a burst only after 10 s."""

LOOK_BACK_S = 5.0
"""How long Serve keeps metrics. The policy reads the newest; Serve averages over this window the calls that
wait for a replica, which start one if there is none."""

logger = logging.getLogger("ray.serve")

Record = Callable[[str, str, ScalingChange], None]
"""Keeps a change of an application's deployment, for gateways to show."""

Reports = Mapping[str, Mapping[str, float]]
"""Each running replica's newest metrics, by its unique id."""


class ObjectivePolicy:
    """One model's policy. Serve's controller keeps it until the deployment changes. ``rules`` are the fields
    of ``ScalingRules``; ``announce`` publishes which replicas should sleep, ``record`` why the
    fleet was changed."""

    def __init__(self, announce: Announce = announce, record: Record = record_change, **rules: Any) -> None:
        self._autoscaler = Autoscaler(ScalingRules(**rules))
        self._record = record
        self._sleepers = Sleepers(announce) if rules.get("max_sleeping") else None
        self._counters = {
            name: Increments() for name in ("arrived", "arrived_tokens", "first_tokens", "late_first_tokens")
        }
        self._decision: Decision | None = None
        self._decided_at = 0.0
        self._decided_for = (0, 0)

    def __call__(self, context: AutoscalingContext) -> tuple[int, dict[str, Any]]:
        """The wanted number of replicas, and no policy state for Serve to keep."""
        return self.decide(context, time.monotonic()).replicas, {}

    def decide(self, context: AutoscalingContext, now: float) -> Decision:
        """The decision at ``now`` (monotonic seconds). Within ``PERIOD_S`` and with an unchanged fleet size,
        the last one."""
        fleet = len(context.running_replicas), context.target_num_replicas
        too_soon = now - self._decided_at < PERIOD_S and fleet == self._decided_for
        if self._decision is not None and too_soon:
            return self._decision
        replicas = _newest(context)
        decision = self._autoscaler.decide(self._load(context, replicas), now)
        self._tell(context, decision)
        if self._sleepers is not None:
            self._sleepers.follow(context, decision, replicas)
        self._decision, self._decided_at, self._decided_for = decision, now, fleet
        return decision

    def _load(self, context: AutoscalingContext, replicas: Reports) -> FleetLoad:
        reports = list(replicas.values())
        gateways = gateway_loads(reports)
        grown = {name: self._growth(name, gateways) for name in self._counters}
        loads = dict(zip(replicas, replica_loads(reports), strict=True))
        sleeping = set() if self._sleepers is None else self._sleepers.among(replicas)
        waking = {name for name, load in loads.items() if load.withdrawn and name not in sleeping}
        return FleetLoad(
            ready=tuple(load for name, load in loads.items() if name not in sleeping | waking),
            waking=len(waking),
            sleeping=len(sleeping),
            # Requested but not running: it is starting, or the cluster has no room for it yet.
            starting=max(0, context.target_num_replicas - len(reports)),
            queued=sum(each.queued for each in gateways),
            queued_tokens=sum(each.queued_tokens for each in gateways),
            arrived=grown["arrived"],
            arrived_tokens=grown["arrived_tokens"],
            first_tokens=grown["first_tokens"],
            late_first_tokens=grown["late_first_tokens"],
        )

    def _growth(self, name: str, gateways: Sequence[GatewayLoad]) -> float:
        """The growth of one counter over all gateways since the last decision."""
        return self._counters[name].since_last({each.gateway: getattr(each, name) for each in gateways})

    def _tell(self, context: AutoscalingContext, decision: Decision) -> None:
        target, reason = context.target_num_replicas, decision.reason.value
        if decision.replicas != target or decision.wake or decision.sleep:
            change = ScalingChange(
                round(time.time(), 3),
                target,
                decision.replicas,
                decision.needed,
                reason,
                wake=decision.wake,
                sleep=decision.sleep,
            )
            self._record(context.deployment_id.app_name, context.deployment_id.name, change)
        if decision.replicas != target:
            logger.info(
                "%s: %d -> %d replicas (%s; the load needs %d)",
                context.deployment_name,
                target,
                decision.replicas,
                reason,
                decision.needed,
            )


class Sleepers:
    """Which replicas should sleep. A new policy, as after a crash of the controller, wakes all of them."""

    def __init__(self, announce: Announce) -> None:
        self._announce = announce
        self._asleep: list[str] = []
        self._announced: list[str] | None = None

    def among(self, replicas: Reports) -> set[str]:
        """The replicas that were asked to sleep, whether they already sleep or not."""
        return replicas.keys() & set(self._asleep)

    def follow(self, context: AutoscalingContext, decision: Decision, replicas: Reports) -> None:
        """Apply a decision: the replica asked last wakes first; the least loaded ones go to sleep."""
        asleep = [name for name in self._asleep if name in replicas]
        asleep = asleep[: len(asleep) - decision.wake]
        awake = [name for name in replicas if name not in self._asleep]
        asleep += sorted(awake, key=lambda name: _requests(replicas[name]))[: decision.sleep]
        self._asleep = asleep
        if asleep != self._announced:
            self._announce(context.deployment_id.app_name, context.deployment_id.name, asleep)
            self._announced = asleep


def _requests(report: Mapping[str, float]) -> float:
    return report.get("running", 0.0) + report.get("waiting", 0.0)


def _newest(context: AutoscalingContext) -> Reports:
    """Each running replica's newest metrics; empty for one that has not reported yet."""
    raw = context.raw_metrics or {}
    return {
        replica.unique_id: {
            name: series[replica][-1].value for name, series in raw.items() if series.get(replica)
        }
        for replica in context.running_replicas
    }


def autoscaling_config(settings: AutoscalingSettings) -> AutoscalingConfig:
    """Serve's configuration. Serve applies the bounds."""
    return AutoscalingConfig(
        min_replicas=settings.min,
        max_replicas=settings.max,
        upscale_delay_s=0.0,
        downscale_delay_s=0.0,
        downscale_to_zero_delay_s=0.0,
        metrics_interval_s=METRICS_PERIOD_S,
        look_back_period_s=LOOK_BACK_S,
        policy=AutoscalingPolicy(  # type: ignore[no-untyped-call]
            policy_function="deployments.engine.autoscaling:ObjectivePolicy",
            policy_kwargs=_rules(settings),
        ),
    )


def _rules(settings: AutoscalingSettings) -> dict[str, Any]:
    """The settings renamed to the fields of ``ScalingRules``."""
    rules = settings.model_dump(exclude={"sleep_level"})  # only the engine needs it
    least, most = rules.pop("min"), rules.pop("max")
    return {"min_replicas": least, "max_replicas": most, "max_sleeping": rules.pop("sleeping"), **rules}
