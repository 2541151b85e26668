"""The gateways' metrics: names, labels and buckets. Ray writes `ray_` before each name on its Prometheus
page, and `_total` behind those of counters."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Protocol

import msgspec

BUCKETS_S = (
    0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5,
    0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 60.0,
)  # fmt: skip
"""1 ms to 60 s, each at most twice the one before; the thresholds of alerts are among them."""


class Kind(Enum):
    COUNTER = auto()
    GAUGE = auto()
    HISTOGRAM = auto()


class Metric(msgspec.Struct, frozen=True):
    """One metric as it is defined; ``labels`` are the names of its labels."""

    name: str
    kind: Kind
    description: str
    labels: tuple[str, ...] = ()

    @property
    def exported(self) -> str:
        """Its name on Ray's Prometheus page."""
        return f"ray_{self.name}" + ("_total" if self.kind is Kind.COUNTER else "")


class Meter(Protocol):
    """Where the values of metrics go. No call may wait or raise."""

    def observe(self, metric: Metric, value: float, labels: Mapping[str, str], operation: str = "") -> None:
        """One value of a histogram; ``operation``: what was asked for, for meters that name it."""
        ...

    def add(self, metric: Metric, number: float, labels: Mapping[str, str]) -> None:
        """To a counter; ``number`` is above 0."""
        ...

    def set(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        """A gauge."""
        ...


class NoMeter:
    """Keeps nothing: for a gateway outside Ray."""

    def observe(self, metric: Metric, value: float, labels: Mapping[str, str], operation: str = "") -> None:
        pass

    def add(self, metric: Metric, number: float, labels: Mapping[str, str]) -> None:
        pass

    def set(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        pass


def _histogram(measure: str, description: str) -> Metric:
    return Metric(f"promptly_{measure}_seconds", Kind.HISTOGRAM, description, ("model", "outcome"))


def _counter(name: str, description: str, *labels: str) -> Metric:
    return Metric(f"promptly_{name}", Kind.COUNTER, description, labels)


def _gauge(name: str, description: str, *labels: str) -> Metric:
    return Metric(f"promptly_{name}", Kind.GAUGE, description, labels)


DURATIONS = {
    "ttft": _histogram("ttft", "From a request's arrival to its first token, of streams."),
    "tpot": _histogram("tpot", "Time per output token after the first, of each request."),
    "e2e": _histogram("e2e", "From a request's arrival to its last byte."),
    "overhead": _histogram("overhead", "The gateway's own part of a request: its time less the upstream's."),
    "queue": _histogram("queue", "In the gateway's queue, of requests that waited."),
}
"""Each measure of the latency monitor, by its name there."""

ITL_PIECES = _counter(
    "itl_pieces",
    "Pieces of streams that came within `le` seconds of the one before: buckets for `histogram_quantile`.",
    "model",
    "le",
)
REAL_TIME_FACTOR = Metric(
    "promptly_real_time_factor",
    Kind.HISTOGRAM,
    "Seconds that a client waited for each second of its recording, the queue included.",
    ("model", "outcome"),
)
REQUESTS = _counter("requests", "Finished requests.", "model", "outcome")
TOKENS = _counter("tokens", "Tokens of finished requests; `kind`: input, output, cached.", "model", "kind")
TOKENS_SAVED = _counter("tokens_saved", "Output tokens that the cache answered.", "model")
LOOK_UPS = _counter("cache_look_ups", "Requests that might be answered from the cache.", "model")
HITS = _counter(
    "cache_hits", "Requests that the cache answered; `tier`: exact, semantic, joined.", "model", "tier"
)
ERRORS = _counter("errors", "Requests that failed for reasons that are not the client's.", "model")
STALLED = _counter("stalled_streams", "Streams that were cut because nothing came any more.", "model")
RUNAWAY = _counter("runaway_generations", "Answers of `alerts.runaway_tokens` or more.", "model")
LOOPS = _counter("looping_sessions", "Sessions that began to repeat a request.", "model")
TRAFFIC = _counter("traffic", "What `/admin/traffic` counts, by `event`.", "event")
CACHE_EVENTS = _counter("cache_events", "What `/admin/cache` counts of one gateway, by `event`.", "event")
CPU = _counter("gateway_cpu_seconds", "Seconds of CPU that the gateway's process has used.")
FIRING = _gauge("alert_firing", "1 while an alert fires, else 0.", "rule", "model")
MEMBERS = _gauge("members", "Members of a model's fleet by state.", "model", "state")
QUEUED = _gauge("queued_requests", "Requests that wait for a member now.", "model")
MEMBER_REQUESTS = _gauge(
    "member_requests", "Requests at an engine; `state`: running, waiting.", "model", "member", "state"
)
MEMBER_CAPACITY = _gauge("member_capacity", "Requests that an engine runs at once.", "model", "member")
KV_USE = _gauge("member_kv_cache_use", "The used share of an engine's KV cache, 0 to 1.", "model", "member")
KV_TOKENS = _gauge("member_kv_cache_tokens", "The size of an engine's KV cache.", "model", "member")
ACCEPTANCE = _gauge(
    "member_draft_acceptance", "Accepted share of an engine's newest draft tokens, 0 to 1.", "model", "member"
)
ENGINE_START = _gauge(
    "engine_start_seconds", "Seconds of each phase of an engine's start.", "model", "member", "phase"
)
LOOP_LAG = _gauge("gateway_loop_lag_seconds", "How late the gateway's event loop was, at worst, lately.")
BREAKER = _gauge("breaker_open", "1 while the breaker of cache look-ups is open.")

TENANT_REQUESTS = _counter("tenant_requests", "Usage: requests; `kind`: answered, refused.", "tenant", "kind")
TENANT_TOKENS = _counter("tenant_tokens", "Usage: tokens; `kind`: input, output, saved.", "tenant", "kind")
TENANT_COST = _counter(
    "tenant_cost", "Usage: money by the settings' prices; `kind`: tokens, devices, saved.", "tenant", "kind"
)
EXPERIMENT_REQUESTS = _counter(
    "experiment_requests", "Finished requests of an experiment's arm.", "experiment", "arm", "outcome"
)
EXPERIMENT_TTFT = Metric(
    "promptly_experiment_ttft_seconds",
    Kind.HISTOGRAM,
    "As `promptly_ttft_seconds`, of an arm's requests that an engine answered.",
    ("experiment", "arm"),
)
EXPERIMENT_E2E = Metric(
    "promptly_experiment_e2e_seconds",
    Kind.HISTOGRAM,
    "As `promptly_e2e_seconds`, of an arm's requests that an engine answered.",
    ("experiment", "arm"),
)
EXPERIMENT_SHADOWS = _counter("experiment_shadows", "Shadow requests, by `event`.", "experiment", "event")
EXPERIMENT_STOPPED = _gauge("experiment_stopped", "1 once an experiment has ended by itself.", "experiment")
PROMPT_PROBLEMS = _gauge("prompt_problems", "Files of prompts that cannot be used as they are now.")
USAGE_DROPPED = _counter("usage_dropped", "Requests whose usage was not counted: too much of it waited.")
FEEDBACK_SAID = _counter(
    "feedback", "What people said of answers; `kind`: negative, positive, other.", "kind"
)
FEEDBACK_DROPPED = _counter(
    "feedback_dropped", "Requests of which nothing can be said: too many waited for the feedback's owner."
)
CAPTURES = _counter(
    "captures",
    "Requests that were to be captured; `kind`: kept, full, too_large, waiting, unreadable, failed.",
    "kind",
)
CAPTURE_STOPPED = _gauge("capture_stopped", "1: there is no room for more captured requests.")
SAMPLED = _counter("sampled_answers", "Captured answers that were looked at for drift.", "model")
SAMPLED_CHARS = _counter("sampled_chars", "Characters of these.", "model")
REFUSALS = _counter("refusals", "Of these, answers that refuse.", "model")
OTHER_LANGUAGE = _counter(
    "other_language", "Of these, answers in another language than their question.", "model"
)
JUDGED = _counter("judged_answers", "Captured answers that a judge model has graded.", "model")
JUDGED_POINTS = _counter("judged_points", "Their scores, 0 to 1000 each.", "model")
JUDGEMENTS = _counter(
    "judgements", "Answers for the judge model; `kind`: scored, unreadable, failed, dropped.", "kind"
)
METRICS = (
    *DURATIONS.values(), ITL_PIECES, REAL_TIME_FACTOR, REQUESTS, TOKENS, TOKENS_SAVED, LOOK_UPS, HITS,
    ERRORS, STALLED, RUNAWAY, LOOPS, TRAFFIC, CACHE_EVENTS, CPU, FIRING, MEMBERS, QUEUED, MEMBER_REQUESTS,
    MEMBER_CAPACITY, KV_USE, KV_TOKENS, ACCEPTANCE, ENGINE_START, LOOP_LAG, BREAKER, TENANT_REQUESTS,
    TENANT_TOKENS, TENANT_COST, USAGE_DROPPED, FEEDBACK_SAID, FEEDBACK_DROPPED, CAPTURES, CAPTURE_STOPPED,
    SAMPLED, SAMPLED_CHARS, REFUSALS, OTHER_LANGUAGE, JUDGED, JUDGED_POINTS, JUDGEMENTS, PROMPT_PROBLEMS,
    EXPERIMENT_REQUESTS, EXPERIMENT_TTFT, EXPERIMENT_E2E, EXPERIMENT_SHADOWS, EXPERIMENT_STOPPED,
)  # fmt: skip
"""All of them, as docs/operations.md lists them."""
