"""What is known of a finished request: one value, made once, for all that look at requests afterwards
(log lines, latency windows, alerts, metrics, the console). It never holds text of a prompt or an answer."""

from __future__ import annotations

import re

import msgspec

from serve_app.openai.usage import Measured, TokenCounts
from serve_app.request.gaps import Gaps
from serve_app.request.timing import UPSTREAM_STEPS, Timeline

UNMATCHED = "unmatched"
"""The route of a request whose path or method is none of the gateway's."""

MOST_CHARS = 200
"""Longest value: a client or a member may have chosen it."""

OUTSIDE_TEXTS = (
    "request_id", "method", "route", "tenant", "model", "member", "cache", "error", "finish_reason", "entry",
    "user",
)  # fmt: skip
"""What clients and members may have chosen."""

CODE = re.compile(r"[A-Za-z0-9_.:-]{1,80}")
UNNAMED = "upstream_error"
"""What stands for a code that is none, but a text: members choose their own, and may repeat a prompt."""

LASTING = "realtime"
"""The endpoint whose requests last as long as their clients speak: their whole time says nothing. ``status``
is 101, or that of the error that ended one."""

NOTHING_MEASURED = Measured()


class StepTime(msgspec.Struct, frozen=True):
    """One step of a finished request. ``offset_ms`` counts from the request's start."""

    name: str
    offset_ms: float
    duration_ms: float


class RequestRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One finished request, answered or refused.

    ``route`` is the path's template (a bounded set), or ``UNMATCHED``; ``endpoint``: the name of its handler
    (``chat``, ``messages``, ``responses``, ``items``, …). ``trace_id``: of the caller's W3C trace, or of the
    gateway's own. ``session`` is a pseudonym (``TenantMarks.session``): equal for all
    requests of one session of one tenant, until the application restarts. ``member``
    is ``None`` where no member answered. ``cache`` is the value of ``x-cache``; ``similarity`` and ``score``
    of a near hit. ``error`` is the error's code, also of a stream that was cut; ``status`` 0: the client left
    before there was one.

    Milliseconds: ``total_ms`` from the request's arrival to its last byte; ``upstream_ms`` of it a member
    worked; ``overhead_ms`` is the rest, queueing included. ``ttft_ms`` to the first bytes of a stream.
    ``itl_ms``: the mean time between two tokens of a member's stream (TPOT). ``steps`` in order of their
    start; they may overlap. ``ask``: the same number for the same last message of a session, in one process;
    else ``None``."""

    request_id: str
    trace_id: str | None
    start_unix_ns: int
    method: str
    route: str
    endpoint: str
    tenant: str | None
    model: str | None
    member: str | None
    session: str | None
    cache: str | None
    similarity: float | None
    score: float | None
    status: int
    error: str | None
    client_gone: bool
    finish_reason: str | None
    streamed: bool
    tokens: TokenCounts
    ttft_ms: float | None
    total_ms: float
    upstream_ms: float
    overhead_ms: float
    itl_ms: float | None
    steps: tuple[StepTime, ...]
    ask: int | None = None
    entry: str | None = None
    """The entry of a near hit, for reports on it."""
    error_status: int | None = None
    """The status of ``error``: a stream that has begun has 200 all the same."""
    chose_deadline: bool = False
    """The client named its own time-out."""
    key_id: str | None = None
    """The public id of the key that it came with."""
    user: str | None = None
    """The user whom that key names."""
    audio_s: float = 0.0
    """Seconds of the recordings that it brought."""
    experiment: str | None = None
    """The experiment that it is in, and its arm: ``NAME=ARM``."""
    gaps: Gaps | None = None
    """Between the pieces of a member's stream. Lists and lines of records leave them out."""
    estimated: TokenCounts | None = None
    """What it is taken to have used, where its answer ended before anything was counted, or a member's count
    cannot be true."""


class Facts(msgspec.Struct):
    """What becomes known of a request while it runs, besides its timeline and its response headers."""

    route: str = UNMATCHED
    endpoint: str = UNMATCHED
    tenant: str | None = None
    model: str | None = None
    session: str | None = None
    cache: str | None = None
    error: str | None = None
    error_status: int | None = None
    chose_deadline: bool = False
    client_gone: bool = False
    streamed: bool = False
    measured: Measured = NOTHING_MEASURED
    gaps: Gaps | None = None
    ask: int | None = None
    key_id: str | None = None
    user: str | None = None
    audio_s: float = 0.0
    experiment: str | None = None
    place: float = 0.0
    """In that experiment: the same for all requests that keep one arm."""


def trace_id_of(traceparent: str | None) -> str | None:
    """The trace id of a W3C ``traceparent``; ``None`` without a usable one."""
    parts = () if traceparent is None else traceparent.split("-", 3)
    if len(parts) != 4 or len(parts[1]) != 32 or not set(parts[1]) <= set("0123456789abcdef"):
        return None
    return None if parts[1] == "0" * 32 else parts[1]


def step_times(timeline: Timeline) -> tuple[StepTime, ...]:
    start = timeline.start_ns
    ordered = sorted(timeline.steps, key=lambda step: step.start_ns)
    return tuple(
        [
            StepTime(step.name, (step.start_ns - start) / 1e6, (step.end_ns - step.start_ns) / 1e6)
            for step in ordered
        ]
    )


def shortened(record: RequestRecord) -> RequestRecord:
    """The record without its gaps, and with long texts cut for a list or a line."""
    changes: dict[str, str | None] = {
        name: text[:MOST_CHARS]
        for name in OUTSIDE_TEXTS
        if (text := getattr(record, name)) is not None and len(text) > MOST_CHARS
    }
    if record.gaps is not None:
        changes["gaps"] = None
    return msgspec.structs.replace(record, **changes) if changes else record


def record_of(
    facts: Facts,
    timeline: Timeline,
    *,
    request_id: str,
    trace_id: str | None,
    method: str,
    status: int,
    member: str | None,
    similarity: float | None,
    score: float | None,
    entry: str | None = None,
) -> RequestRecord:
    """The record of a request that has ended; its timeline is complete."""
    end = timeline.last_byte_ns or timeline.clock()
    overhead = timeline.without_ns(UPSTREAM_STEPS, end)
    first = timeline.first_byte_ns if facts.streamed else 0
    return RequestRecord(
        request_id=request_id,
        trace_id=trace_id,
        start_unix_ns=timeline.unix_ns,
        method=method,
        route=facts.route,
        endpoint=facts.endpoint,
        tenant=facts.tenant,
        model=facts.model,
        member=member,
        session=facts.session,
        cache=facts.cache,
        similarity=similarity,
        score=score,
        status=status,
        error=_code(facts.error),
        client_gone=facts.client_gone,
        finish_reason=facts.measured.finish_reason,
        streamed=facts.streamed,
        tokens=facts.measured.tokens,
        ttft_ms=(first - timeline.start_ns) / 1e6 if first else None,
        total_ms=(end - timeline.start_ns) / 1e6,
        upstream_ms=(end - timeline.start_ns - overhead) / 1e6,
        overhead_ms=overhead / 1e6,
        itl_ms=None if member is None else _between_tokens_ms(first, end, facts.measured.tokens.output),
        steps=step_times(timeline),
        ask=facts.ask,
        entry=entry,
        error_status=facts.error_status,
        chose_deadline=facts.chose_deadline,
        key_id=facts.key_id,
        user=facts.user,
        audio_s=facts.audio_s,
        experiment=facts.experiment,
        gaps=None if member is None else facts.gaps,
    )


def _code(error: str | None) -> str | None:
    return error if error is None or CODE.fullmatch(error) else UNNAMED


def _between_tokens_ms(first_ns: int, end_ns: int, tokens: int | None) -> float | None:
    if not first_ns or tokens is None or tokens < 2:
        return None
    return (end_ns - first_ns) / 1e6 / (tokens - 1)
