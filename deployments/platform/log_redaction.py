"""Keeps known secrets out of what a process logs, tracebacks too."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from serve_app.redaction import Redactor

LOGGERS = ("ray.serve", "asyncio")
"""Ours, and the one that tells of errors that nobody waited for."""


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
            if redacted != trace:  # the text in its place: formatters print it and no longer the exception
                record.exc_text, record.exc_info = redacted, None
        return True


@contextmanager
def redacted_logs(redactor: Redactor) -> Iterator[None]:
    """While it lasts, the secrets stand in no log of this process."""
    filtering = RedactingFilter(redactor)
    loggers = [logging.getLogger(name) for name in LOGGERS] if redactor else []
    for logger in loggers:
        logger.addFilter(filtering)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(filtering)
