"""The comparison as JSON values, Markdown and a plot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from autoscaling_simulation.comparison import DEFAULT, EAGER, FIXED, OURS, Comparison, Point, Run, Study
from autoscaling_simulation.fleet import Outcome
from autoscaling_simulation.replica import ReplicaModel
from autoscaling_simulation.trace import Request
from serve_app.autoscaling import ScalingRules
from serve_app.latency import percentile

PICTURE_BIN_S = 30.0


def nearest(replica_hours: float, runs: Sequence[Run]) -> Run:
    """The run of Serve's default with the nearest cost."""
    default = [run for run in runs if run.policy == DEFAULT]
    return min(default, key=lambda run: abs(run.outcome.replica_hours - replica_hours))


def values(study_: Study, objective_s: float) -> dict[str, Any]:
    """The content of the JSON file."""
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
        f"A replica: {model.slots} slots, {model.prefill_tokens_per_s:g} prompt tokens a second, "
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
    """Replicas, queue and TTFT over time, for Promptly's policy and the default at the nearest replica-hours;
    and the late share of each policy by cost."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(4, 1, figsize=(9, 12))
    other = nearest(study_.main.outcome.replica_hours, study_.front)
    for run in (study_.main, other):
        outcome, label = run.outcome, f"{run.policy} ({run.setting})"
        axes[0].step(outcome.at_s, outcome.ready, where="post", label=label)
        axes[1].plot(outcome.at_s, outcome.queued, label=label, linewidth=0.8)
        axes[2].plot(*_over_time(trace, outcome), ".-", label=label, linewidth=0.8, markersize=3)
    axes[0].set(ylabel="replicas that serve")
    axes[1].set(ylabel="requests in the queue")
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
    """Times, and the p95 of the TTFT of the requests that arrived in each bin."""
    bins: dict[int, list[float]] = {}
    for request, ttft_s in zip(trace, outcome.ttft_s, strict=True):
        bins.setdefault(int(request.at_s / PICTURE_BIN_S), []).append(ttft_s)
    times = [(number + 0.5) * PICTURE_BIN_S for number in bins]
    return times, [percentile(sorted(found), 0.95) for found in bins.values()]
