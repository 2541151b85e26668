"""Keeps known secrets out of a process's logs, including tracebacks."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager

from deployments.platform.log_filters import filtered
from serve_app.redaction import Redactor

LOGGERS = ("ray.serve", "asyncio")
"""Our logger, and asyncio's, which reports exceptions that were never retrieved."""


class RedactingFilter(logging.Filter):
    """Changes records before any handler formats them."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor
        self._formatter = logging.Formatter()

    def filter(self, record: logging.LogRecord) -> bool:
        said = record.getMessage()
        redacted = self._redactor.text(said)
        if redacted != said:
            record.msg, record.args = redacted, None
        if record.exc_info and not record.exc_text:
            trace = self._formatter.formatException(record.exc_info)
            redacted = self._redactor.text(trace)
            if redacted != trace:  # formatters then print this text, not the exception
                record.exc_text, record.exc_info = redacted, None
        return True


def redacted_logs(redactor: Redactor) -> AbstractContextManager[None]:
    """While this context is open, the loggers above do not log the secrets."""
    return filtered(LOGGERS if redactor else (), RedactingFilter(redactor))
