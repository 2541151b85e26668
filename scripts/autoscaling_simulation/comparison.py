"""Policies side by side on one trace, compared at equal replica-hours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from autoscaling_simulation.fleet import Outcome, simulate
from autoscaling_simulation.policies import ByObjective, Fixed, Scaler, ServeDefault
from autoscaling_simulation.replica import ReplicaModel
from autoscaling_simulation.trace import Request
from serve_app.autoscaling import ScalingRules
from serve_app.latency import percentile

TARGETS = (0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0)
"""Targets of the default policy (``target_ongoing_requests``; Serve's default is 2)."""

START_TIMES_S = (10.0, 60.0, 180.0)
OBJECTIVES_S = (0.5, 1.0, 2.0, 5.0)
HEADROOMS = (0.0, 0.5)

OURS = "by objective"
DEFAULT = "Serve's default"
EAGER = "Serve's, no upscale delay"
FIXED = "fixed fleet"


@dataclass(frozen=True, slots=True)
class Point:
    """Cost and result of one run; ``setting`` names its setting."""

    setting: str
    replica_hours: float
    late_share: float


def best_at(replica_hours: float, points: Sequence[Point]) -> float:
    """The late share that a policy reaches at this cost: linear between those of its runs that no other run
    beats in both. Outside their range the nearest run counts."""
    front: list[Point] = []
    for point in sorted(points, key=lambda each: (each.replica_hours, each.late_share)):
        if not front or point.late_share < front[-1].late_share:
            front.append(point)
    if replica_hours <= front[0].replica_hours:
        return front[0].late_share
    for low, high in pairwise(front):
        if replica_hours <= high.replica_hours:
            part = (replica_hours - low.replica_hours) / (high.replica_hours - low.replica_hours)
            return low.late_share + part * (high.late_share - low.late_share)
    return front[-1].late_share


@dataclass(frozen=True, slots=True)
class Run:
    """One policy with one setting on one trace."""

    policy: str
    setting: str
    outcome: Outcome

    def point(self, objective_s: float) -> Point:
        return Point(self.setting, self.outcome.replica_hours, self.outcome.late_share(objective_s))


@dataclass(frozen=True, slots=True)
class Comparison:
    """Promptly's policy against the others at the same replica-hours."""

    start_s: float
    objective_s: float
    ours: Point
    ttft_p95_s: float
    others: Mapping[str, float]

    @property
    def ratio(self) -> float:
        """The late share divided by that of Serve's default."""
        return self.ours.late_share / self.others[DEFAULT] if self.others[DEFAULT] else float("inf")


@dataclass(frozen=True, slots=True)
class Study:
    """All runs on one trace; ``front`` are those at the main setting."""

    name: str
    requests: int
    comparisons: Sequence[Comparison]
    front: Sequence[Run]
    main: Run


@dataclass(frozen=True, slots=True)
class Bench:
    """Runs policies on one trace within the same bounds."""

    trace: Sequence[Request]
    model: ReplicaModel
    rules: ScalingRules

    def run(self, policy: str, setting: str, scaler: Scaler, start_s: float, objective_s: float) -> Run:
        model = replace(self.model, start_s=start_s)
        initial = max(1, self.rules.min_replicas)
        if isinstance(scaler, Fixed):
            initial = scaler.number
        outcome = simulate(self.trace, scaler, model, objective_s=objective_s, initial=initial)
        return Run(policy, setting, outcome)

    def ours(self, start_s: float, objective_s: float, **changed: float) -> Run:
        rules = replace(self.rules, ttft_objective_s=objective_s, **changed)  # type: ignore[arg-type]
        setting = ", ".join(f"{name} {value:g}" for name, value in changed.items()) or "as shipped"
        return self.run(OURS, setting, ByObjective(rules), start_s, objective_s)

    def default(self, start_s: float, **changed: float) -> list[Run]:
        """Serve's policy at every target. It has no objective, so one set of runs serves for all
        objectives."""
        policy = EAGER if changed else DEFAULT
        return [
            self.run(policy, f"target {target:g}", ServeDefault(self._config(target, changed)), start_s, 1.0)
            for target in TARGETS
        ]

    def _config(self, target: float, changed: Mapping[str, float]) -> Any:
        from ray.serve.config import AutoscalingConfig

        bounds = {"min_replicas": self.rules.min_replicas, "max_replicas": self.rules.max_replicas}
        return AutoscalingConfig(**bounds, target_ongoing_requests=target, **changed)  # type: ignore[arg-type]

    def fixed(self) -> list[Run]:
        numbers = range(max(1, self.rules.min_replicas), self.rules.max_replicas + 1)
        return [self.run(FIXED, f"{number} replicas", Fixed(number), 60.0, 1.0) for number in numbers]


def study(name: str, bench: Bench, objective_s: float) -> Study:
    fixed, comparisons, front = bench.fixed(), [], []
    main_start_s = bench.model.start_s
    for start_s in sorted({*START_TIMES_S, main_start_s}):
        is_main = start_s == main_start_s
        others = [*bench.default(start_s), *fixed]
        if is_main:
            others += bench.default(start_s, upscale_delay_s=0.0)
        for each_s in sorted({*OBJECTIVES_S, objective_s}) if is_main else (objective_s,):
            ours = bench.ours(start_s, each_s)
            comparisons.append(compare(start_s, each_s, ours, others))
            if is_main and each_s == objective_s:
                main, front = ours, [ours, *others]
    front += [bench.ours(main_start_s, objective_s, headroom=headroom) for headroom in HEADROOMS]
    return Study(name, len(bench.trace), comparisons, front, main)


def compare(start_s: float, objective_s: float, ours: Run, others: Sequence[Run]) -> Comparison:
    point = ours.point(objective_s)
    by_policy: dict[str, list[Point]] = {}
    for run in others:
        by_policy.setdefault(run.policy, []).append(run.point(objective_s))
    shares = {policy: best_at(point.replica_hours, points) for policy, points in by_policy.items()}
    p95_s = percentile(sorted(ours.outcome.ttft_s), 0.95)
    return Comparison(start_s, objective_s, point, p95_s, shares)
