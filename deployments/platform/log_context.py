"""Which request a log line belongs to: every line that is written while a request is worked on names it."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from contextvars import ContextVar

from deployments.platform.log_filters import filtered
from deployments.platform.log_redaction import LOGGERS

CURRENT: ContextVar[tuple[str, str | None] | None] = ContextVar("promptly_request", default=None)
"""The request's id and its trace id. Tasks inherit it from the task that started them."""


class RequestIds(logging.Filter):
    """Adds both ids to a record's text, before any handler formats it."""

    def filter(self, record: logging.LogRecord) -> bool:
        ids = CURRENT.get()
        if ids is not None and not hasattr(record, "promptly_ids"):
            request_id, trace_id = ids
            trace = "" if trace_id is None else f" trace_id={trace_id}"
            record.msg, record.args = f"{record.getMessage()} [request_id={request_id}{trace}]", None
            record.promptly_ids = True
        return True


def named_requests() -> AbstractContextManager[None]:
    """While this context is open, lines of the loggers say to which request they belong."""
    return filtered(LOGGERS, RequestIds())
