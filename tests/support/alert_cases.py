"""For each alert: a usual request, and one of those that make it fire."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deployments.gateway.monitoring.monitor import Monitor
from serve_app.settings.alerts import AlertSettings
from support.records import a_record

EVERY = AlertSettings(e2e_p95_ms=1000.0, e2e_p99_ms=3000.0)
"""Turns every rule on."""

CALM = {"refuses": False, "other_language": False, "chars": 400}

CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "ttft_p95": ({}, {"ttft_ms": 1200.0}),
    "ttft_p99": ({}, {"ttft_ms": 3500.0}),
    "e2e_p95": ({}, {"total_ms": 1200.0}),
    "e2e_p99": ({}, {"total_ms": 3500.0}),
    "ttft_p50_rise": ({"ttft_ms": 100.0}, {"ttft_ms": 250.0}),
    "hit_rate_drop": ({"cache": "semantic"}, {"cache": "miss"}),
    "error_share": ({}, {"status": 503, "error": "no_replica"}),
    "token_spike": ({"prompt": 300, "output": 100}, {"prompt": 3000, "output": 1000}),
    "stalled_streams": ({}, {"error": "upstream_stalled"}),
    "runaway_generations": ({}, {"output": 20_000}),
    "looping_sessions": ({}, {"session": "s", "ask": 7}),
    "refusal_rise": ({"sampled": CALM}, {"sampled": {**CALM, "refuses": True}}),
    "language_rise": ({"sampled": CALM}, {"sampled": {**CALM, "other_language": True}}),
    "score_drop": ({"judged": 0.9}, {"judged": 0.3}),
    "length_change": ({"sampled": CALM}, {"sampled": {**CALM, "chars": 1600}}),
}
"""``sampled``: what is seen of an answer that was captured; ``judged``: its score."""

USUAL_S, WRONG_S, AFTER_S = 1900, 290, 2200
"""Requests come every second: the usual ones for longer than half an hour, wrong ones for less than five
minutes."""


def feed(monitor: Monitor, case: Mapping[str, Any]) -> None:
    """One request of a case."""
    sampled = case.get("sampled")
    own = {name: value for name, value in case.items() if name not in ("sampled", "judged")}
    monitor.take(a_record(**own))
    if "judged" in case:
        monitor.judged("m", case["judged"])
    if sampled is not None:
        monitor.sampled("m", **sampled)
