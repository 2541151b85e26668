"""For people who size the fleet: how full it is, what slows it, and what `promptly plan` foretold."""

from __future__ import annotations

from dashboards import promql
from dashboards.contract import Dashboard, Panel, Query, Row
from dashboards.promql import OURS, SHARES, or_none, rate, seen_by_gateways
from dashboards.vllm_names import Vllm
from serve_app.monitoring import metrics as ours
from serve_app.planning import rules as planned


def capacity(ttft_objective_s: float | None) -> Dashboard:
    """``ttft_objective_s``: the limit of the alert on the p95, if there is one."""
    return Dashboard(
        uid="promptlyCapacity",
        title="Promptly: capacity",
        description="How full the fleet is, what slows it, and what `promptly plan` foretold.",
        rows=(
            Row("Load", (_replicas(), _use(), _queue(), _kv(), _objective(ttft_objective_s), _preemptions())),
            Row("Each replica", (_written(), _read(), _engine_times())),
            Row("What saves work", (_prefixes(), _acceptance(), _drafts())),
            Row("Foretold by `promptly plan` (needs its rules file)", _foretold()),
        ),
    )


def _replicas() -> Panel:
    requests = seen_by_gateways(ours.MEMBER_REQUESTS, "model, member, state")
    slots = seen_by_gateways(ours.MEMBER_CAPACITY, "model, member")
    ready = seen_by_gateways(ours.MEMBERS, "model", f'{OURS}, state="ready"')
    return Panel(
        "Replicas against load",
        "Ready members, requests at the engines, and how many they run at once.",
        "short",
        (
            Query(ready, "ready {{model}}"),
            Query(f"sum by (model, state) ({requests})", "{{state}} {{model}}"),
            Query(f"sum by (model) ({slots})", "slots {{model}}"),
        ),
    )


def _use() -> Panel:
    running = seen_by_gateways(ours.MEMBER_REQUESTS, "model, member", f'{OURS}, state="running"')
    slots = seen_by_gateways(ours.MEMBER_CAPACITY, "model, member")
    return Panel(
        "Slots in use",
        "Running requests of each engine as a share of what it runs at once.",
        "percentunit",
        (Query(f"({running}) / (({slots}) > 0)", "{{model}} {{member}}"),),
        most=1,
    )


def _queue() -> Panel:
    at_engines = seen_by_gateways(ours.MEMBER_REQUESTS, "model, member", f'{OURS}, state="waiting"')
    return Panel(
        "Waiting",
        "In the gateways' queues, and in the engines' own: a gateway sends no more than an engine has room "
        "for.",
        "short",
        (
            Query(f"sum by (model) ({ours.QUEUED.exported}{{{OURS}}})", "gateways {{model}}"),
            Query(f"sum by (model) ({at_engines})", "engines {{model}}"),
        ),
    )


def _kv() -> Panel:
    return Panel(
        "KV cache",
        "Used share of each engine. Near 1, requests wait or are preempted.",
        "percentunit",
        (Query(seen_by_gateways(ours.KV_USE, "model, member"), "{{model}} {{member}}"),),
        most=1,
    )


def _objective(objective_s: float | None) -> Panel:
    line = () if objective_s is None else (Query(f"vector({objective_s:g})", "objective"),)
    (_, p95, _) = promql.percentiles("ttft")
    return Panel(
        "TTFT against its objective",
        "The p95, and the limit of its alert (`alerts.ttft_p95_ms`).",
        "s",
        (p95, *line),
    )


def _preemptions() -> Panel:
    return Panel(
        "Preemptions",
        "Requests a second that an engine put back because its KV cache was full; each is computed again.",
        "reqps",
        (Query(or_none(rate(Vllm.PREEMPTIONS, "")), "all engines"),),
    )


def _written() -> Panel:
    return Panel(
        "Output tokens of each replica",
        "A second.",
        "short",
        (Query(rate(Vllm.OUTPUT_TOKENS, "model_name, ReplicaId"), "{{model_name}} {{ReplicaId}}"),),
    )


def _read() -> Panel:
    return Panel(
        "Prompt tokens of each replica",
        "A second; those found in the prefix cache count too.",
        "short",
        (Query(rate(Vllm.PROMPT_TOKENS, "model_name, ReplicaId"), "{{model_name}} {{ReplicaId}}"),),
    )


def _engine_times() -> Panel:
    parts = {"queue": Vllm.QUEUE_TIME, "prefill": Vllm.PREFILL_TIME, "decode": Vllm.DECODE_TIME}
    return Panel(
        "Where an engine's time goes",
        "p95 of its own queue, the prompt, and the tokens after the first.",
        "s",
        tuple(
            Query(
                promql.quantile(each.exported, promql.OF_VLLM, 0.95, "model_name"),
                f"{name} {{{{model_name}}}}",
            )
            for name, each in parts.items()
        ),
    )


def _prefixes() -> Panel:
    by = "model_name, ReplicaId"
    found = promql.share(rate(Vllm.PREFIX_HITS, by), rate(Vllm.PREFIX_QUERIES, by))
    return Panel(
        "Prefix-cache hits",
        "Share of the prompt tokens that an engine had computed before.",
        "percentunit",
        (Query(found, "{{model_name}} {{ReplicaId}}"),),
        most=1,
    )


def _acceptance() -> Panel:
    return Panel(
        "Accepted drafts",
        "Of the newest draft tokens of each engine with speculation. When low, drafting costs time.",
        "percentunit",
        (Query(seen_by_gateways(ours.ACCEPTANCE, "model, member"), "{{model}} {{member}}"),),
        most=1,
    )


def _drafts() -> Panel:
    return Panel(
        "Draft tokens",
        "A second: proposed, and accepted.",
        "short",
        (
            Query(rate(Vllm.DRAFTED, "model_name"), "proposed {{model_name}}"),
            Query(rate(Vllm.ACCEPTED, "model_name"), "accepted {{model_name}}"),
        ),
    )


def _foretold() -> tuple[Panel, ...]:
    size = f"max by (model) ({seen_by_gateways(ours.KV_TOKENS, 'model, member')})"
    written = f"max by (model_name) ({rate(Vllm.OUTPUT_TOKENS, 'model_name, ReplicaId')})"
    median, tpot = SHARES[0][1], ours.DURATIONS["tpot"].exported
    token = promql.quantile(tpot, f'{OURS}, outcome="answered"', median, "model")
    return (
        Panel(
            "KV cache of a replica",
            "In tokens: less than foretold means that something else takes the memory.",
            "short",
            (Query(f"{planned.KV_TOKENS}{{{OURS}}}", "foretold {{model}}"), Query(size, "is {{model}}")),
        ),
        Panel(
            "Time per token",
            "Foretold for one request alone and for a full batch, each with 1,000 tokens of context; the "
            "median that streams see.",
            "s",
            (
                Query(f"{planned.TOKEN_S}{{{OURS}}}", "foretold {{model}}, batch of {{batch}}"),
                Query(token, "is {{model}}"),
            ),
        ),
        Panel(
            "Output tokens of the busiest replica",
            "A second, against the most that a full batch was foretold to give.",
            "short",
            (
                Query(f"{planned.TOKENS_PER_S}{{{OURS}}}", "foretold most {{model}}"),
                Query(written, "is {{model_name}}"),
            ),
        ),
    )
