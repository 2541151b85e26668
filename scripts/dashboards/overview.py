"""The dashboard for the person on call: what users see, what is wrong, and which part causes it."""

from __future__ import annotations

from dashboards import promql
from dashboards.contract import Dashboard, Panel, Query, Row
from dashboards.promql import OURS, or_none, rate
from dashboards.vllm_names import Vllm
from serve_app.monitoring import metrics as ours


def overview() -> Dashboard:
    return Dashboard(
        uid="promptlyOverview",
        title="Promptly: on call",
        description="What users see, what is wrong, and which part causes it.",
        rows=(
            Row("What users see", (*_latency(), *_requests())),
            Row("What is wrong", (_alerts(), _rescued(), _refused(), _queue(), _members(), _breaker())),
            Row("Cache", (_hits(), _saved(), _reports())),
            Row("Experiments", (_arms(), _arms_first(), _ended())),
            Row("Own overhead", (_overhead(), _loop_lag(), _cpu())),
        ),
    )


def _latency() -> tuple[Panel, ...]:
    gap, of_vllm = Vllm.BETWEEN_TOKENS.exported, promql.OF_VLLM
    gaps = tuple(
        Query(promql.quantile(gap, of_vllm, share, "model_name"), f"{name} {{{{model_name}}}}")
        for name, share in promql.SHARES
    )
    passed_on = tuple(
        Query(promql.quantile_of_pieces(share), f"{name} {{{{model}}}}, passed on")
        for name, share in promql.SHARES[1:]
    )
    return (
        Panel("Time to first token", ours.DURATIONS["ttft"].description, "s", promql.percentiles("ttft")),
        Panel(
            "Between two tokens",
            "Gaps between tokens, as our engines measure them, and as gateways pass pieces on to clients.",
            "s",
            (*gaps, *passed_on),
        ),
        Panel("Whole request", ours.DURATIONS["e2e"].description, "s", promql.percentiles("e2e")),
    )


def _requests() -> tuple[Panel, ...]:
    all_requests = rate(ours.REQUESTS, "model")
    failed = rate(ours.REQUESTS, "model", 'outcome="failed"')
    return (
        Panel(
            "Requests",
            "Finished requests by outcome.",
            "reqps",
            (Query(rate(ours.REQUESTS, "outcome"), "{{outcome}}"),),
        ),
        Panel(
            "Failed share",
            "Failures that are not the client's; the status 429 does not count.",
            "percentunit",
            (Query(promql.share(failed, all_requests), "{{model}}"),),
        ),
        Panel(
            "Tokens",
            "Tokens that engines read and wrote; `cached`: tokens found in their prefix caches.",
            "short",
            (Query(rate(ours.TOKENS, "kind"), "{{kind}}"),),
        ),
    )


def _alerts() -> Panel:
    firing = promql.seen_by_gateways(ours.FIRING, "rule, model")
    return Panel(
        "Alerts",
        "1 while an alert fires. `/admin/alerts` and the console show how far the others are from firing.",
        "short",
        (Query(firing, "{{rule}} {{model}}"),),
    )


def _traffic(*events: str) -> tuple[Query, ...]:
    return tuple(Query(or_none(rate(ours.TRAFFIC, "", f'event="{each}"')), each) for each in events)


def _rescued() -> Panel:
    return Panel(
        "Failovers and hedges",
        "Requests moved to another member before or after the first byte, hedged requests, and streams "
        "that were cut.",
        "reqps",
        _traffic("failovers", "continued", "hedged", "hedge_wins", "cut", "quarantined"),
    )


def _refused() -> Panel:
    return Panel(
        "Refused and queued",
        "Refused requests (status 429), and requests that had to wait.",
        "reqps",
        _traffic("refused", "queued"),
    )


def _queue() -> Panel:
    waiting = f"sum by (model) ({ours.QUEUED.exported}{{{OURS}}})"
    return Panel("Queue", "Requests that now wait for a member.", "short", (Query(waiting, "{{model}}"),))


def _members() -> Panel:
    return Panel(
        "Members by state",
        "Members by state, as the gateways see them.",
        "short",
        (Query(promql.seen_by_gateways(ours.MEMBERS, "model, state"), "{{model}} {{state}}"),),
    )


def _breaker() -> Panel:
    failures = or_none(rate(ours.CACHE_EVENTS, "", 'event="failures"'))
    return Panel(
        "Cache breaker",
        "1 while a gateway does not ask the cache; failed calls a second.",
        "short",
        (
            Query(f"max({ours.BREAKER.exported})", "open"),
            Query(failures, "failures"),
        ),
    )


def _hits() -> Panel:
    asked = f"scalar({rate(ours.LOOK_UPS, '')} > 0)"
    return Panel(
        "Hits by tier",
        "The share of hits among the requests that the cache might answer.",
        "percentunit",
        (Query(f"{rate(ours.HITS, 'tier')} / {asked}", "{{tier}}"),),
        most=1,
    )


def _saved() -> Panel:
    return Panel(
        "Tokens saved",
        "Output tokens a second that the cache saved, beside those that engines wrote.",
        "short",
        (
            Query(rate(ours.TOKENS_SAVED, "model"), "saved {{model}}"),
            Query(rate(ours.TOKENS, "model", 'kind="output"'), "written {{model}}"),
        ),
    )


def _reports() -> Panel:
    def hourly(event: str) -> Query:
        each = or_none(rate(ours.CACHE_EVENTS, "", f'event="{event}"'))
        return Query(f"3600 * ({each})", event.replace("_", " "))

    return Panel(
        "Near misses and reports, an hour",
        "Near entries that were refused, and answers that people reported.",
        "short",
        tuple(map(hourly, ("near_misses", "reported_wrong", "reported_right"))),
    )


def _arms() -> Panel:
    failed = rate(ours.EXPERIMENT_REQUESTS, "experiment, arm", 'outcome="failed"')
    every = rate(ours.EXPERIMENT_REQUESTS, "experiment, arm")
    return Panel(
        "Failed share of arms",
        "The failed share of each experiment's arms; refused requests are not counted.",
        "percentunit",
        (Query(promql.share(failed, every), "{{experiment}} {{arm}}"),),
    )


def _arms_first() -> Panel:
    p95 = promql.quantile(ours.EXPERIMENT_TTFT.exported, "", 0.95, "experiment, arm")
    return Panel(
        "Time to first token of arms, p95",
        ours.EXPERIMENT_TTFT.description,
        "s",
        (Query(p95, "{{experiment}} {{arm}}"),),
    )


def _ended() -> Panel:
    return Panel(
        "Ended experiments",
        "1 once an experiment has ended by itself; shadow requests a second by outcome.",
        "short",
        (
            Query(promql.seen_by_gateways(ours.EXPERIMENT_STOPPED, "experiment", ""), "{{experiment}}"),
            Query(rate(ours.EXPERIMENT_SHADOWS, "event"), "shadows {{event}}"),
        ),
    )


def _overhead() -> Panel:
    return Panel(
        "Gateway's own part",
        ours.DURATIONS["overhead"].description,
        "s",
        promql.percentiles("overhead"),
    )


def _loop_lag() -> Panel:
    return Panel(
        "Lag of the event loop",
        "How late timers are at worst; every stream of that gateway waits that long.",
        "s",
        (Query(ours.LOOP_LAG.exported, "{{WorkerId}}"),),
    )


def _cpu() -> Panel:
    return Panel(
        "CPU of gateways",
        "CPU cores used. A gateway can use one core, so a gateway near 1 is at its limit.",
        "short",
        (Query(f"rate({ours.CPU.exported}[$window])", "{{WorkerId}}"),),
    )
