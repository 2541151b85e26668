"""TTFT and time per output token at a load: by formula for a rate, by replay for a trace.

A replica is modelled as two stations in series. A request first takes one of the replica's *slots*
(``max_num_seqs``, or as many as the KV cache holds) and keeps it until its answer ends. Then its prompt is
prefilled; prompts run one after the other. Decode steps run between the chunks of a prompt, and slow down by
the share of time that prompts take.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from serve_app.planning.queueing import mean_wait_s
from serve_app.planning.speed import Speed

MAX_REPLICAS = 4096


@dataclass(frozen=True, slots=True)
class Load:
    """Traffic: requests per second over all replicas, mean tokens, and squared coefficients of variation
    (1: Poisson)."""

    rate: float
    prompt_tokens: float
    output_tokens: float
    arrival_scv: float = 1.0
    prompt_scv: float = 1.0


@dataclass(frozen=True, slots=True)
class Target:
    """The latency target: ``share`` of the requests stay within ``ttft_s`` and within ``tpot_s``. Against a
    rate instead of a trace, the means must."""

    ttft_s: float = 1.0
    tpot_s: float = 0.1
    share: float = 0.95


USUAL_TARGET = Target()


@dataclass(frozen=True, slots=True)
class Latency:
    """Times at a load. ``ttft_s`` is the mean (by formula) or the quantile of the target (by replay);
    infinite if the queue grows without bound."""

    replicas: int
    ttft_s: float
    tpot_s: float
    batch: float
    utilization: float


@dataclass(frozen=True, slots=True)
class Engine:
    """One replica for the queueing model: speed, limits of its slots, and tokens per step
    (``max_num_batched_tokens``)."""

    speed: Speed
    max_num_seqs: int
    kv_tokens: int
    step_tokens: int

    def slots(self, tokens: float) -> int:
        """Requests of ``tokens`` each (prompt and answer) that run at once."""
        return max(min(self.max_num_seqs, int(self.kv_tokens // max(tokens, 1.0))), 0)

    def prefill_s(self, tokens: float, batch: float, context: float) -> float:
        """A prompt while ``batch`` requests decode: each chunk of the prompt shares a step with them."""
        parts = math.ceil(tokens / self.step_tokens)
        beside = self.speed.decode_step_s(batch, context) if batch >= 1.0 else 0.0
        return self.speed.prefill_s(tokens) + parts * beside


def latency_at(engine: Engine, load: Load, replicas: int) -> Latency:
    """Means by formula: Allen-Cunneen at both stations (Erlang C if both variances are 1), the batch by
    Little's law.

    The batch is the smallest one at which requests end as fast as they arrive.
    """
    rate = load.rate / replicas
    context = load.prompt_tokens + load.output_tokens / 2.0
    slots = engine.slots(load.prompt_tokens + load.output_tokens)
    busy = rate * engine.speed.prefill_s(load.prompt_tokens)
    batch, tpot = _settled(engine, load, rate)
    if not math.isfinite(tpot):
        return Latency(replicas, math.inf, math.inf, float(slots), max(busy, 1.0))
    prefill = engine.prefill_s(load.prompt_tokens, batch, context)
    hold = prefill + load.output_tokens * tpot
    # The time that a slot is held is assumed to be exponential.
    for_slot = mean_wait_s(load.rate, hold, slots * replicas, load.arrival_scv, 1.0)
    for_prompt = mean_wait_s(load.rate, prefill, replicas, load.arrival_scv, load.prompt_scv)
    utilization = max(rate * prefill, rate * hold / slots)
    return Latency(replicas, for_slot + for_prompt + prefill, tpot, batch, utilization)


def _settled(engine: Engine, load: Load, rate: float) -> tuple[float, float]:
    """The batch and time per token at which requests end as fast as they arrive; an infinite time if there
    is no such batch.

    ``rate`` is that of one replica.
    """
    context = load.prompt_tokens + load.output_tokens / 2.0
    slots = engine.slots(load.prompt_tokens + load.output_tokens)
    busy = rate * engine.speed.prefill_s(load.prompt_tokens)
    if busy >= 1.0 or slots < 1:
        return float(slots), math.inf
    batch = 0.0
    for _ in range(200):
        tpot = engine.speed.decode_step_s(max(batch, 1.0), context) / (1.0 - busy)
        wanted = rate * load.output_tokens * tpot
        if wanted >= slots:
            return float(slots), math.inf
        if abs(wanted - batch) <= 1e-6 * max(batch, 1.0):
            return wanted, tpot
        batch = wanted
    return float(slots), math.inf


def replicas_for(engine: Engine, load: Load, target: Target) -> Latency | None:
    """The fewest replicas whose mean times meet the target; ``None`` if no number does (one request alone is
    too slow)."""
    return _fewest(lambda count: latency_at(engine, load, count), target)


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests in order of arrival: seconds, prompt tokens, output tokens. All tuples have the same
    length."""

    arrivals: tuple[float, ...]
    prompts: tuple[int, ...]
    outputs: tuple[int, ...]

    @property
    def span_s(self) -> float:
        return self.arrivals[-1] - self.arrivals[0] if self.arrivals else 0.0


def trace_load(trace: Trace) -> Load:
    """Rate, means and variances of a trace of at least two requests."""
    gaps = [later - earlier for earlier, later in zip(trace.arrivals, trace.arrivals[1:], strict=False)]
    count = len(trace.arrivals)
    return Load(
        (count - 1) / max(trace.span_s, 1e-9),
        sum(trace.prompts) / count,
        sum(trace.outputs) / count,
        _scv(gaps),
        _scv(trace.prompts),
    )


def _scv(values: Sequence[float]) -> float:
    mean = sum(values) / max(len(values), 1)
    if mean <= 0:
        return 0.0
    return sum((value - mean) ** 2 for value in values) / len(values) / mean**2


def replay(engine: Engine, trace: Trace, replicas: int, target: Target) -> Latency:
    """Replay each request of the trace through both stations, first come, first served, with the exact
    recursion of Kiefer and Wolfowitz (1955) for G/G/c. It uses no averages, so bursts have their full effect.

    The replicas count as one pool, because the router knows their load. A request's time per token is that
    of the batch at its arrival; later prompts, which slow it down, are left out.
    """
    load = trace_load(trace)
    slots = engine.slots(load.prompt_tokens + load.output_tokens) * replicas
    if slots < 1:
        return Latency(replicas, math.inf, math.inf, 0.0, 1.0)
    context = load.prompt_tokens + load.output_tokens / 2.0
    ends: list[float] = []
    pending: list[float] = []
    prompts = [0.0] * replicas
    waits: list[float] = []
    tpots: list[float] = []
    busy = 0.0
    for arrival, prompt, output in zip(trace.arrivals, trace.prompts, trace.outputs, strict=True):
        while ends and ends[0] <= arrival:
            heapq.heappop(ends)
        while pending and pending[0] <= arrival:
            heapq.heappop(pending)
        decoding = max(len(ends) - len(pending), 0) / replicas
        begins = heapq.heappop(ends) if len(ends) >= slots else arrival
        batch = (len(ends) + 1) / replicas
        service = engine.prefill_s(prompt, decoding, context)
        first = max(begins, arrival, prompts[0]) + service
        heapq.heapreplace(prompts, first)
        heapq.heappush(pending, first)
        tpot = engine.speed.decode_step_s(max(batch, 1.0), context)
        heapq.heappush(ends, first + output * tpot)
        waits.append(first - arrival)
        tpots.append(tpot)
        busy += service
    span = max(trace.span_s, 1e-9) * replicas
    return Latency(replicas, _quantile(waits, target.share), _quantile(tpots, target.share), 0.0, busy / span)


def replicas_for_trace(engine: Engine, trace: Trace, target: Target) -> Latency | None:
    """The fewest replicas that meet the target over the whole trace; ``None`` if no number does."""
    return _fewest(lambda count: replay(engine, trace, count, target), target)


def _fewest(latency: Callable[[int], Latency], target: Target) -> Latency | None:
    """Search by doubling, then by halving: more replicas mean shorter times."""

    def is_met(found: Latency) -> bool:
        return found.ttft_s <= target.ttft_s and found.tpot_s <= target.tpot_s

    low, high = 0, 1
    found = latency(high)
    while not is_met(found):
        if high >= MAX_REPLICAS:
            return None
        low, high = high, high * 2
        found = latency(high)
    while high - low > 1:
        middle = (low + high) // 2
        tried = latency(middle)
        if is_met(tried):
            high, found = middle, tried
        else:
            low = middle
    return found


def _quantile(values: list[float], share: float) -> float:
    """The nearest-rank quantile."""
    ordered = sorted(values)
    return ordered[min(math.ceil(share * len(ordered)), len(ordered)) - 1]
