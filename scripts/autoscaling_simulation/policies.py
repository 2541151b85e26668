"""The policies that are compared: by objective (Promptly's), Ray Serve's default, and a fixed fleet."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import Any, Protocol

from serve_app.autoscaling import Autoscaler, Decision, FleetLoad, ReplicaLoad, ScalingRules

REPORTED_AFTER = 2
"""Ticks: gateways send their load to engines once a second, and engines report to Serve once a second."""


@dataclass(frozen=True, slots=True)
class View:
    """What a policy sees at a tick. Serve's policy uses ``mean_ongoing``, over its ``look_back_period_s``."""

    load: FleetLoad
    mean_ongoing: float


class Scaler(Protocol):
    """A policy under test."""

    def replicas(self, view: View, now: float) -> int:
        """The wanted number of replicas."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always the same number."""

    number: int

    def replicas(self, view: View, now: float) -> int:
        return self.number


class ByObjective:
    """Promptly's policy (``serve_app.autoscaling``). It sees the load as late as in a cluster: reports of
    gateways and engines reach Serve up to ``reported_after`` ticks later."""

    def __init__(self, rules: ScalingRules, reported_after: int = REPORTED_AFTER) -> None:
        self._autoscaler = Autoscaler(rules)
        self._on_the_way: deque[FleetLoad] = deque([FleetLoad()] * reported_after)
        self.decisions: list[Decision] = []

    def replicas(self, view: View, now: float) -> int:
        self._on_the_way.append(view.load)
        reported = self._on_the_way.popleft()
        self.decisions.append(self._autoscaler.decide(_as_reported(view.load, reported), now))
        return self.decisions[-1].serving


def _as_reported(fleet: FleetLoad, reported: FleetLoad) -> FleetLoad:
    """The present replicas, which Serve knows at once, with the load that was reported."""
    new = fleet.ready[len(reported.ready) :]
    ready = reported.ready[: len(fleet.ready)] + tuple(ReplicaLoad(capacity=each.capacity) for each in new)
    return replace(reported, ready=ready, starting=fleet.starting)


class ServeDefault:
    """Ray Serve's own code, in virtual time.

    ``ray.serve`` applies scaling factors, delays and bounds with the wall clock
    (``_apply_autoscaling_config``); here its functions that take the time as an argument do so. It sees more
    than in a cluster: every request, also queued ones, at every tick, where Serve's replicas and handles
    record every 6 s and report every 10 s.
    """

    def __init__(self, config: Any) -> None:
        from ray.serve import autoscaling_policy

        self._policy = autoscaling_policy
        self._config = config
        self._state: dict[str, Any] = {}

    def replicas(self, view: View, now: float) -> int:
        load, config, policy = view.load, self._config, self._policy
        context = _serve_context(view, config, now)
        desired, _ = policy.replica_queue_length_autoscaling_policy(context)
        ready = len(load.ready)
        scaled = policy._apply_scaling_factors(desired, ready, config)
        if ready > 0 or scaled == 0:
            scaled, self._state = policy._apply_delay_logic(scaled, load.serving, config, self._state, now)
        return int(max(config.min_replicas, min(config.max_replicas, scaled)))


def _serve_context(view: View, config: Any, now: float) -> Any:
    from ray.serve.config import AutoscalingContext

    return AutoscalingContext(
        deployment_id=None,  # type: ignore[arg-type]  # the policy does not read it
        deployment_name="engine",
        app_name=None,
        current_num_replicas=len(view.load.ready),
        target_num_replicas=view.load.serving,
        running_replicas=[],
        total_num_requests=view.mean_ongoing,
        total_queued_requests=view.load.queued,
        aggregated_metrics=None,
        raw_metrics=None,
        capacity_adjusted_min_replicas=config.min_replicas,
        capacity_adjusted_max_replicas=config.max_replicas,
        policy_state={},
        last_scale_up_time=None,
        last_scale_down_time=None,
        current_time=now,
        config=config,
    )
