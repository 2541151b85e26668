"""Adds a filter to loggers for as long as a context is open."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


@contextmanager
def filtered(loggers: Iterable[str], by: logging.Filter) -> Iterator[None]:
    """``by`` sees every record of the loggers of these names, before any handler formats it."""
    found = [logging.getLogger(name) for name in loggers]
    for logger in found:
        logger.addFilter(by)
    try:
        yield
    finally:
        for logger in found:
            logger.removeFilter(by)
