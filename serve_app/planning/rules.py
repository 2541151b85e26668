"""What a plan foretells, as recording rules for Prometheus: dashboards show it beside what is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from serve_app.planning.plan import ModelPlan

KV_TOKENS = "promptly:planned_kv_cache_tokens"
TOKEN_S = "promptly:planned_time_per_output_token_seconds"
TOKENS_PER_S = "promptly:planned_output_tokens_per_second"
"""Tokens of one replica."""

CONTEXT_TOKENS = 1000.0
"""Context of each request of the batch, as in the plan's report."""


def recording_rules(plans: Sequence[ModelPlan]) -> dict[str, Any]:
    """The content of a rules file. What a plan does not know has no rule."""
    rules = [rule for plan in plans for rule in _of(plan)]
    return {"groups": [{"name": "promptly-plan", "rules": rules}]}


def _of(plan: ModelPlan) -> Iterator[dict[str, Any]]:
    if plan.memory.tokens:
        yield _constant(KV_TOKENS, plan.memory.tokens, plan.id)
    if plan.speed is None:
        return
    full = plan.request.sequences(plan.device)
    for batch in sorted({1, full}):
        step_s = plan.speed.decode_step_s(batch, CONTEXT_TOKENS)
        yield _constant(TOKEN_S, step_s, plan.id, batch=str(batch))
    yield _constant(TOKENS_PER_S, full / plan.speed.decode_step_s(full, CONTEXT_TOKENS), plan.id)


def _constant(name: str, value: float, model: str, **labels: str) -> dict[str, Any]:
    return {"record": name, "expr": f"vector({value:.6g})", "labels": {"model": model, **labels}}
