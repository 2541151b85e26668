"""A plan as text for a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from serve_app.planning.cost import cost
from serve_app.planning.engine_request import GIB
from serve_app.planning.load import (
    USUAL_TARGET,
    Engine,
    Latency,
    Load,
    Target,
    Trace,
    latency_at,
    replay,
    replicas_for,
    replicas_for_trace,
    trace_load,
)
from serve_app.planning.memory import Memory
from serve_app.planning.plan import ModelPlan
from serve_app.planning.speed import UNCERTAINTY
from serve_app.planning.weights import element_bytes

SHOWN_PROMPT_TOKENS = 1000
"""Length of the prompt whose prefill time the report shows, and context of the decode step."""


@dataclass(frozen=True, slots=True)
class Demand:
    """The question to the plan: a load or a trace (each optional), a target, and a price per device and
    hour."""

    load: Load | None = None
    trace: Trace | None = None
    target: Target = USUAL_TARGET
    price: float | None = None


def report(plan: ModelPlan, demand: Demand) -> Iterator[str]:
    """The report on one model, line by line, without its problems: the caller prints those with the file's
    name."""
    yield from _head(plan)
    yield from _execution(plan)
    yield from _memory(plan)
    yield from _capacity(plan)
    yield from _speed(plan)
    engine = plan.engine
    if engine is not None and not plan.problems:
        yield from _load(plan, engine, demand)
        yield from _trace(plan, engine, demand)
    yield from (f"  note: {note}" for note in plan.notes)


def _head(plan: ModelPlan) -> Iterator[str]:
    request = plan.request
    parts = [f"tensor parallel {request.tensor_parallel}"]
    if request.pipeline_parallel > 1:
        parts.append(f"pipeline parallel {request.pipeline_parallel}")
    if request.data_parallel > 1:
        parts.append(f"data parallel {request.data_parallel}")
    device = "device not known (--device)" if plan.device is None else plan.device.name
    yield f"{plan.where} {plan.id}: {plan.source}"
    yield f"  {plan.architecture.name}, {request.devices} x {device}, {', '.join(parts)}"


def _execution(plan: ModelPlan) -> Iterator[str]:
    found = plan.request.execution
    if found is None:
        return
    scheduling = "asynchronous" if found.is_async else "synchronous"
    runner = {1: "first", 2: "second"}[found.runner]
    yield f"  vLLM: {runner} model runner, CUDA graphs {found.graphs}, {scheduling} scheduling"
    yield from (f"    {reason}" for reason in found.reasons)


def memory_rows(taken: Memory) -> list[tuple[str, float]]:
    """What takes memory on each device besides the KV cache, in bytes."""
    return [
        ("weights", taken.weights),
        ("draft", taken.draft),
        ("adapters", taken.adapters),
        ("activations", taken.activations),
        ("CUDA graphs", taken.graphs),
        ("runtime", taken.non_torch),
    ]


def _memory(plan: ModelPlan) -> Iterator[str]:
    taken = plan.memory
    yield "  memory per device, GiB"
    yield from (f"    {name:<12} {size / GIB:8.2f}" for name, size in memory_rows(taken) if size)
    if taken.kv_bytes is not None:
        yield f"    {'KV cache':<12} {taken.kv_bytes / GIB:8.2f}{_doubt(plan)}"
    if taken.usable is not None:
        yield f"    {'usable':<12} {taken.usable / GIB:8.2f}"


def _doubt(plan: ModelPlan) -> str:
    """No start of the second runner was published with its memory, so its activations are from the source."""
    found = plan.request.execution
    if found is None or found.runner == 1 or plan.request.kv_cache_bytes is not None:
        return ""
    return "  at most: what the second runner reserves was not measured"


def _capacity(plan: ModelPlan) -> Iterator[str]:
    taken = plan.memory
    if taken.kv_per_token:
        yield f"  KV cache: {taken.kv_per_token:,.0f} bytes per token and device"
    requests = taken.requests(plan.context)
    if taken.tokens is not None and requests is not None:
        yield f"    holds {taken.tokens:,} tokens: {requests:.2f} requests of {plan.context:,} tokens at once"


def _speed(plan: ModelPlan) -> Iterator[str]:
    if plan.speed is None:
        return
    one, many = (plan.speed.decode_step_s(batch, SHOWN_PROMPT_TOKENS) for batch in (1, 32))
    prefill = plan.speed.prefill_s(SHOWN_PROMPT_TOKENS)
    bits = element_bytes(plan.architecture, plan.request) * 8
    yield f"  expected, {bits:.0f}-bit activations; an estimate, ± {100 * UNCERTAINTY:.0f} %"
    yield f"    per token {_ms(one)} alone, {_ms(many)} in a batch of 32 (at 1,000 tokens of context)"
    yield f"    prefill {_ms(prefill)} per 1,000 tokens"


def _load(plan: ModelPlan, engine: Engine, demand: Demand) -> Iterator[str]:
    load = demand.load
    if load is None:
        return
    yield (
        f"  load: {load.rate:g} requests/s, {load.prompt_tokens:,.0f} + {load.output_tokens:,.0f} tokens "
        "(two stations, Allen-Cunneen over Erlang C)"
    )
    yield f"    {plan.max_replicas} replicas: {_latency(latency_at(engine, load, plan.max_replicas), 'mean')}"
    found = replicas_for(engine, load, demand.target)
    yield from _needed(plan, found, demand, load, "mean")


def _trace(plan: ModelPlan, engine: Engine, demand: Demand) -> Iterator[str]:
    if demand.trace is None:
        return
    trace, skipped = _that_fits(demand.trace, plan.context)
    if len(trace.arrivals) < 2:
        yield "  trace: fewer than two of its requests fit the context"
        return
    load = trace_load(trace)
    yield (
        f"  trace: {len(trace.arrivals):,} requests in {trace.span_s:,.0f} s, {load.rate:.2f}/s, "
        f"{load.prompt_tokens:,.0f} + {load.output_tokens:,.0f} tokens; replayed (Kiefer-Wolfowitz)"
    )
    if skipped:
        yield f"    {skipped:,} requests are longer than the context and are left out"
    share = f"p{100 * demand.target.share:g}"
    found = replay(engine, trace, plan.max_replicas, demand.target)
    yield f"    {plan.max_replicas} replicas: {_latency(found, share)}"
    yield from _needed(plan, replicas_for_trace(engine, trace, demand.target), demand, load, share)


def _needed(plan: ModelPlan, found: Latency | None, demand: Demand, load: Load, share: str) -> Iterator[str]:
    target = demand.target
    aim = f"TTFT {_ms(target.ttft_s)} and {_ms(target.tpot_s)} per token"
    if found is None:
        yield f"    no number of replicas reaches {aim}: even alone, too many requests are slower"
        return
    yield (
        f"    for {aim}: {found.replicas} replicas, {found.replicas * plan.request.devices} devices; "
        + _latency(found, share)
    )
    if demand.price is not None:
        devices = found.replicas * plan.request.devices
        paid = cost(demand.price, devices, load.rate, load.prompt_tokens, load.output_tokens)
        yield (
            f"    cost: {paid.per_hour:.2f} per hour, {paid.per_million_tokens:.3f} per million tokens, "
            f"{paid.per_million_output:.3f} per million answered"
        )


def _that_fits(trace: Trace, context: int) -> tuple[Trace, int]:
    rows = zip(trace.arrivals, trace.prompts, trace.outputs, strict=True)
    kept = [row for row in rows if row[1] + row[2] <= context]
    columns = tuple(zip(*kept, strict=True)) or ((), (), ())
    return Trace(*columns), len(trace.arrivals) - len(kept)


def _latency(found: Latency, share: str) -> str:
    if not math.isfinite(found.ttft_s):
        return "overloaded: the queue grows without bound"
    busy = f", {100 * found.utilization:.0f} % busy"
    return f"{share} TTFT {_ms(found.ttft_s)}, {share} per token {_ms(found.tpot_s)}{busy}"


def _ms(seconds: float) -> str:
    milliseconds = seconds * 1e3
    return f"{milliseconds:,.0f} ms" if milliseconds >= 100 else f"{milliseconds:.1f} ms"
