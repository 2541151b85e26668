"""Which finished requests something may be said of."""

from __future__ import annotations

from serve_app.feedback.values import Judged
from serve_app.request.record import RequestRecord

JUDGED = frozenset({"chat", "completions", "messages", "responses"})
"""Endpoints whose answers a person can judge."""


def judged(record: RequestRecord, asked: str | None = None) -> Judged | None:
    """``None``: there is no answer to judge. ``asked``: see ``Judged``."""
    if record.endpoint not in JUDGED or record.status != 200 or record.tenant is None:
        return None
    return Judged(
        tenant=record.tenant,
        request_id=record.request_id,
        at=record.start_unix_ns / 1e9,
        endpoint=record.endpoint,
        model=record.model,
        key_id=record.key_id,
        user=record.user,
        cache=record.cache,
        entry=record.entry,
        asked=None if record.entry is None else asked,
        finish_reason=record.finish_reason,
        prompt_tokens=record.tokens.prompt,
        output_tokens=record.tokens.output,
        ttft_ms=record.ttft_ms,
        total_ms=record.total_ms,
        experiment=record.experiment,
    )
