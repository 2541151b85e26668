"""What an autoscaling policy is worth: a trace, a simulated fleet, and the policies side by side.

    python scripts/simulate_autoscaling.py ../data/azure_code_1h.csv ../data/azure_conv_1h.csv

Replays each trace (CSV: t_s, input_tokens, output_tokens) against the policy of `serve_app/autoscaling`, Ray
Serve's default policy (its own code) at many targets, and fleets of a fixed size; see
`scripts/autoscaling_simulation.py` for the fleet. Every one has the same bounds. A policy can always buy a
shorter line with more replicas, so shares of late first tokens are compared *at equal replica-hours*: the
default's share is read off the best of its runs, linear between two of them. Writes
simulate_autoscaling.md, .json and one picture a trace.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from autoscaling_simulation import (
    ByObjective,
    Fixed,
    Outcome,
    Point,
    ReplicaModel,
    Request,
    Scaler,
    ServeDefault,
    best_at,
    read_trace,
    simulate,
)

from serve_app.autoscaling import ScalingRules
from serve_app.latency import percentile

TARGETS = (0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0)
"""Of the default policy (``target_ongoing_requests``; Serve's own default is 2)."""

START_TIMES_S = (10.0, 60.0, 180.0)
OBJECTIVES_S = (0.5, 1.0, 2.0, 5.0)
HEADROOMS = (0.0, 0.5)

OURS = "by objective"
DEFAULT = "Serve's default"
EAGER = "Serve's, no upscale delay"
FIXED = "fixed fleet"

PICTURE_BIN_S = 30.0


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
    """Ours against the others at our replica-hours."""

    start_s: float
    objective_s: float
    ours: Point
    ttft_p95_s: float
    others: Mapping[str, float]

    @property
    def ratio(self) -> float:
        """Late share over that of Serve's default."""
        return self.ours.late_share / self.others[DEFAULT] if self.others[DEFAULT] else float("inf")


@dataclass(frozen=True, slots=True)
class Study:
    """Everything about one trace; ``front`` are the runs at the main setting."""

    name: str
    requests: int
    comparisons: Sequence[Comparison]
    front: Sequence[Run]
    main: Run


@dataclass(frozen=True, slots=True)
class Bench:
    """Runs policies on one trace, always within the same bounds."""

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
        """Serve's policy at every target. It knows no objective: its runs serve for all of them."""
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


def nearest(replica_hours: float, runs: Sequence[Run]) -> Run:
    """The run of Serve's default that costs most nearly as much."""
    default = [run for run in runs if run.policy == DEFAULT]
    return min(default, key=lambda run: abs(run.outcome.replica_hours - replica_hours))


def values(study_: Study, objective_s: float) -> dict[str, Any]:
    """What goes into the JSON file."""
    return {
        "trace": study_.name,
        "requests": study_.requests,
        "comparisons": [{**asdict(each), "ratio": each.ratio} for each in study_.comparisons],
        "runs": [
            {
                "policy": run.policy,
                **asdict(run.point(objective_s)),
                "starts": run.outcome.starts,
                "stops": run.outcome.stops,
            }
            for run in study_.front
        ],
    }


def markdown(studies: Sequence[Study], model: ReplicaModel, rules: ScalingRules, objective_s: float) -> str:
    lines = [
        "# Autoscaling policies, simulated\n",
        f"A replica: {model.slots} places, {model.prefill_tokens_per_s:g} prompt tokens a second, "
        f"{model.decode_tokens_per_s:g} tokens a second for a lone stream (each other one adds "
        f"{100 * model.slowdown:g} % to a step). {rules.min_replicas} to {rules.max_replicas} replicas.\n",
        "Late: share of the requests whose first token came after the objective. The others' shares are at "
        "our replica-hours, from the best of their runs.\n",
    ]
    for each in studies:
        lines += [f"## {each.name} ({each.requests} requests)\n", *_comparison_table(each.comparisons)]
        lines += [f"\nAt a start of {model.start_s:g} s and an objective of {objective_s:g} s:\n"]
        lines += [*_run_table(each.front, objective_s), f"\n![{each.name}](simulate_{each.name}.png)\n"]
    return "\n".join(lines) + "\n"


def _comparison_table(comparisons: Sequence[Comparison]) -> list[str]:
    names = [DEFAULT, EAGER, FIXED]
    shown = " | ".join(f"late, {name}" for name in names)
    lines = [f"| start s | objective s | replica-hours | late, ours | {shown} | ratio | our TTFT p95 s |"]
    lines.append("|--:" * 9 + "|")
    for each in comparisons:
        others = " | ".join(_percent(each.others[name]) if name in each.others else "" for name in names)
        lines.append(
            f"| {each.start_s:g} | {each.objective_s:g} | {each.ours.replica_hours:.2f} "
            f"| {_percent(each.ours.late_share)} | {others} | {each.ratio:.2f} | {each.ttft_p95_s:.2f} |"
        )
    return lines


def _run_table(runs: Sequence[Run], objective_s: float) -> list[str]:
    lines = ["| policy | setting | replica-hours | late | TTFT p95 s | starts | stops |"]
    lines.append("|---|---" + "|--:" * 5 + "|")
    for run in runs:
        point, outcome = run.point(objective_s), run.outcome
        p95_s = percentile(sorted(outcome.ttft_s), 0.95)
        lines.append(
            f"| {run.policy} | {run.setting} | {point.replica_hours:.2f} | {_percent(point.late_share)} "
            f"| {p95_s:.2f} | {outcome.starts} | {outcome.stops} |"
        )
    return lines


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def plot(study_: Study, trace: Sequence[Request], objective_s: float, path: Path) -> None:
    """Replicas, line and TTFT over time, ours and the default's at most nearly equal replica-hours; and
    what each policy gives at what cost."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(4, 1, figsize=(9, 12))
    other = nearest(study_.main.outcome.replica_hours, study_.front)
    for run in (study_.main, other):
        outcome, label = run.outcome, f"{run.policy} ({run.setting})"
        axes[0].step(outcome.at_s, outcome.ready, where="post", label=label)
        axes[1].plot(outcome.at_s, outcome.line, label=label, linewidth=0.8)
        axes[2].plot(*_over_time(trace, outcome), ".-", label=label, linewidth=0.8, markersize=3)
    axes[0].set(ylabel="replicas that serve")
    axes[1].set(ylabel="requests in line")
    axes[2].set(ylabel=f"TTFT p95 by {PICTURE_BIN_S:g} s, s", xlabel="time, s", yscale="log")
    axes[2].axhline(objective_s, color="black", linewidth=0.8, linestyle="--")
    for policy in (OURS, DEFAULT, EAGER, FIXED):
        points = sorted((run.point(objective_s) for run in study_.front if run.policy == policy), key=_cost)
        axes[3].plot(
            [each.replica_hours for each in points],
            [100 * each.late_share for each in points],
            "o-",
            label=policy,
            markersize=3,
        )
    axes[3].set(xlabel="replica-hours", ylabel="late first tokens, %")
    for each in axes:
        each.grid(alpha=0.3)
        each.legend(fontsize=8)
    figure.savefig(path, dpi=110, bbox_inches="tight")
    pyplot.close(figure)


def _cost(point: Point) -> float:
    return point.replica_hours


def _over_time(trace: Sequence[Request], outcome: Outcome) -> tuple[list[float], list[float]]:
    """(time, p95 of the TTFT of what came then), by bins."""
    bins: dict[int, list[float]] = {}
    for request, ttft_s in zip(trace, outcome.ttft_s, strict=True):
        bins.setdefault(int(request.at_s / PICTURE_BIN_S), []).append(ttft_s)
    times = [(number + 0.5) * PICTURE_BIN_S for number in bins]
    return times, [percentile(sorted(found), 0.95) for found in bins.values()]


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("traces", type=Path, nargs="+", help="CSV files: t_s, input_tokens, output_tokens")
    parser.add_argument("--start-s", type=float, default=60.0, help="from a replica's order until it serves")
    parser.add_argument("--objective-s", type=float, default=1.0, help="for the time to the first token")
    parser.add_argument("--min", type=int, default=1)
    parser.add_argument("--max", type=int, default=16)
    parser.add_argument("--slots", type=int, default=16)
    parser.add_argument("--prefill", type=float, default=8000.0, help="prompt tokens a second of a replica")
    parser.add_argument("--decode", type=float, default=30.0, help="tokens a second of a lone stream")
    parser.add_argument("--out", type=Path, default=Path("bench"))
    options = parser.parse_args(given)
    if min(options.start_s, options.objective_s, options.slots, options.prefill, options.decode) <= 0:
        parser.error("--start-s, --objective-s, --slots, --prefill, --decode: more than 0")
    if not 0 <= options.min <= options.max or options.max < 1:
        parser.error("--min, --max: expected 0 <= min <= max, and a max of 1 or more")
    return options


def main(given: Sequence[str] | None = None) -> None:
    options = arguments(given)
    missing = [path for path in options.traces if not path.is_file()]
    if missing:
        print(f"simulate_autoscaling: skipped, no such file: {', '.join(map(str, missing))}")
        return
    model = ReplicaModel(options.slots, options.prefill, options.decode, start_s=options.start_s)
    rules = ScalingRules(
        min_replicas=options.min, max_replicas=options.max, ttft_objective_s=options.objective_s
    )
    options.out.mkdir(parents=True, exist_ok=True)
    studies = []
    for path in options.traces:
        try:
            trace = read_trace(path)
        except (OSError, ValueError) as error:
            sys.exit(f"simulate_autoscaling: {error}")
        found = study(path.stem, Bench(trace, model, rules), options.objective_s)
        plot(found, trace, options.objective_s, options.out / f"simulate_{path.stem}.png")
        studies.append(found)
    text = markdown(studies, model, rules, options.objective_s)
    (options.out / "simulate_autoscaling.md").write_text(text, encoding="utf-8")
    content = {
        "replica": asdict(model),
        "rules": asdict(rules),
        "studies": [values(each, options.objective_s) for each in studies],
    }
    (options.out / "simulate_autoscaling.json").write_text(json.dumps(content, indent=1), encoding="utf-8")
    print(text)
    print(f"Written to {options.out}/simulate_autoscaling.md and .json")


if __name__ == "__main__":
    main()
