"""Autoscaling by TTFT against Serve's default policy: Azure's traces in virtual time.

The figure is the share of requests whose first token is later than the objective, divided by that of Serve's
default (the best of its targets at the same replica-hours); ``scripts/simulate_autoscaling.py`` gives tables
and plots. The result does not depend on the machine, so one run is enough. The target is for the code trace,
whose traffic comes in bursts and on which the policy's constants were tuned. The other cases were not used
for tuning, but the last three have been looked at since.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autoscaling_simulation.comparison import DEFAULT, Bench, Comparison, compare
from autoscaling_simulation.replica import ReplicaModel
from autoscaling_simulation.trace import Request, read_trace

from benchmarks.options import Options
from benchmarks.peers import PeerError
from benchmarks.table import Figure, Target, at_most, write_report
from serve_app.autoscaling import ScalingRules

TRACES = Path(__file__).parents[3] / "shared" / "data" / "traces"
CODE, CONVERSATION = "azure_code_1h.csv", "azure_conv_1h.csv"

RULES = ScalingRules(min_replicas=1, max_replicas=16, ttft_objective_s=1.0)
REPLICA = ReplicaModel()
FAST_REPLICA = replace(REPLICA, slots=32, prefill_tokens_per_s=16_000.0, decode_tokens_per_s=60.0)
QUICK_S = 300.0
"""Seconds of each trace in a quick run."""


@dataclass(frozen=True, slots=True)
class Case:
    """A trace, and the replicas that serve it."""

    name: str
    trace: Sequence[Request]
    model: ReplicaModel = REPLICA
    objective_s: float = 1.0

    def compared(self) -> Comparison:
        """Promptly's policy against Serve's default at the same replica-hours."""
        start_s = self.model.start_s
        bench = Bench(self.trace, self.model, RULES)
        ours = bench.ours(start_s, self.objective_s)
        return compare(start_s, self.objective_s, ours, bench.default(start_s))


def run(options: Options, traces: Path = TRACES) -> list[Figure]:
    """Raises: PeerError: the traces are missing."""
    missing = [str(traces / name) for name in (CODE, CONVERSATION) if not (traces / name).is_file()]
    if missing:
        raise PeerError(f"autoscaling: {', '.join(missing)} missing; Azure's LLM inference traces of 2023")
    code, conversation = (read_trace(traces / name) for name in (CODE, CONVERSATION))
    if options.quick:
        code, conversation = (_between(trace, 0.0, QUICK_S) for trace in (code, conversation))
    first, *others = cases(code, conversation)
    figures = list(_figures(first, at_most(0.5)))
    for case in others:
        figures += _figures(case, None)
    about = {
        "replica": f"{REPLICA.slots} slots, {REPLICA.prefill_tokens_per_s:g} prompt tokens/s, "
        f"{REPLICA.decode_tokens_per_s:g} tokens/s, a start takes {REPLICA.start_s:g} s",
        "fleet": f"{RULES.min_replicas} to {RULES.max_replicas} replicas",
        "late": "first tokens after the objective, 1 s unless said",
    }
    write_report(options.out, "autoscaling", figures, about=about)
    return figures


def cases(code: Sequence[Request], conversation: Sequence[Request]) -> list[Case]:
    """The case with the target first."""
    middle_s = code[-1].at_s / 2
    return [
        Case("code", code),
        Case("code, backwards in time", backwards(code)),
        Case("code, its first half", _between(code, 0.0, middle_s)),
        Case("code, its second half", _between(code, middle_s, code[-1].at_s)),
        Case("code, replicas twice as large and fast", code, FAST_REPLICA),
        Case("code, objective 2 s", code, objective_s=2.0),
        Case("code, a start of 180 s", code, replace(REPLICA, start_s=180.0)),
        Case("conversation", conversation),
    ]


def backwards(trace: Sequence[Request]) -> list[Request]:
    """The trace backwards: the last request first."""
    end_s = trace[-1].at_s
    return [replace(request, at_s=end_s - request.at_s) for request in reversed(trace)]


def _between(trace: Sequence[Request], begin_s: float, end_s: float) -> list[Request]:
    """The requests between two times; their times count from ``begin_s``."""
    return [
        replace(request, at_s=request.at_s - begin_s) for request in trace if begin_s <= request.at_s <= end_s
    ]


def _figures(case: Case, target: Target | None) -> Iterator[Figure]:
    found = case.compared()
    yield Figure(
        "late first tokens, over those of Serve's default at equal replica-hours",
        "×",
        (found.ratio,),
        target,
        series=case.name,
    )
    yield Figure("late first tokens", "%", (100 * found.ours.late_share,), series=case.name)
    yield Figure("late first tokens, Serve's default", "%", (100 * found.others[DEFAULT],), series=case.name)
    yield Figure("replica-hours", "h", (found.ours.replica_hours,), series=case.name)
