"""What is measured of one finished request."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

import msgspec

from serve_app.monitoring.windows import OTHER
from serve_app.request.gaps import Gaps
from serve_app.request.record import LASTING, RequestRecord

HITS = frozenset({"exact", "semantic", "joined"})
"""Values of ``x-cache`` for an answer that no engine was asked for on this request's behalf."""

DEADLINE = "deadline_exceeded"
"""The code of the error that a passed time-out ends with."""

STALLED = "upstream_stalled"
"""The code of the error that ends a stream of which nothing comes any more."""

COUNTING = ("tokenize", "count_tokens")
"""The ends of routes that an engine answers without running its model."""

OPERATIONS = {
    "chat": "chat",
    "messages": "chat",
    "responses": "chat",
    "completions": "text_completion",
    "embeddings": "embeddings",
}
"""By endpoint."""

TIMED = ("answered", "cached", "failed")

Outcome = Literal["answered", "cached", "failed", "client_error", "refused", "gone"]


class Sample(msgspec.Struct, frozen=True):
    """``model`` is a name that the settings know, or ``OTHER``: clients cannot make new series.
    ``operation``: what was asked for (see :func:`operation`). ``durations``: by measure, milliseconds.
    ``gaps``: between the pieces of its stream.
    ``real_time_factor``: of an uploaded recording, seconds for each of its seconds.
    ``tier``: which tier of the cache answered, if one did. ``generated``: no tier did, so an engine made its
    tokens. ``tokens_answer``: of one answer, 0 for a session of many."""

    model: str
    operation: str
    outcome: Outcome
    durations: tuple[tuple[str, float], ...]
    gaps: Gaps | None
    real_time_factor: float | None
    tier: str | None
    looked_up: bool
    stalled: bool
    generated: bool
    tokens_in: int
    tokens_out: int
    tokens_answer: int
    tokens_cached: int


def sample_of(record: RequestRecord, names: Collection[str]) -> Sample | None:
    """``None``: it asked nothing of a model (health checks, ``/admin``, counting of tokens)."""
    is_lasting = record.endpoint == LASTING
    if (
        (record.method != "POST" and not is_lasting)
        or record.route.startswith("/admin")
        or record.route.endswith(COUNTING)
    ):
        return None
    outcome, tokens = outcome_of(record), record.tokens
    if record.model is None and outcome == "answered":
        return None  # a stored response was cancelled, a conversation was made
    is_timed = outcome in TIMED and not is_lasting
    return Sample(
        model=record.model if record.model in names and record.model is not None else OTHER,
        operation=operation(record),
        outcome=outcome,
        durations=tuple(_durations(record)) if is_timed else (),
        # Who joins late gets what is kept at once: gaps of no engine.
        gaps=record.gaps if is_timed and record.cache not in HITS else None,
        real_time_factor=record.total_ms / 1000 / record.audio_s if is_timed and record.audio_s else None,
        tier=record.cache if outcome == "cached" else None,
        looked_up=record.cache in HITS or record.cache == "miss",
        stalled=record.error == STALLED,
        generated=record.cache not in HITS,
        tokens_in=tokens.prompt or 0,
        tokens_out=tokens.output or 0,
        tokens_answer=0 if is_lasting else tokens.output or 0,
        tokens_cached=tokens.cached or 0,
    )


def operation(record: RequestRecord) -> str:
    """What OpenTelemetry calls the operation: ``chat``, ``text_completion``, ``embeddings``, or, as the
    conventions let others name their own, the last part of the route, which is one of a bounded set."""
    known = OPERATIONS.get(record.endpoint)
    return known or record.route.rpartition("/")[2].partition("{")[0] or record.endpoint


def outcome_of(record: RequestRecord) -> Outcome:
    if record.client_gone:
        return "gone"
    status = record.status if record.error_status is None else record.error_status
    if status == 429:
        return "refused"
    if record.chose_deadline and record.error == DEADLINE:
        return "client_error"
    if status >= 500 or (record.error is not None and status < 400):
        return "failed"
    if status >= 400:
        return "client_error"
    return "cached" if record.cache in HITS else "answered"


def _durations(record: RequestRecord) -> list[tuple[str, float]]:
    found = [("e2e", record.total_ms), ("overhead", record.overhead_ms)]
    if record.ttft_ms is not None:
        found.append(("ttft", record.ttft_ms))
    if record.itl_ms is not None:
        found.append(("tpot", record.itl_ms))
    queued = [step.duration_ms for step in record.steps if step.name == "queue"]
    if queued:
        found.append(("queue", sum(queued)))
    return found
