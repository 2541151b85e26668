"""Reads a trace of requests: a CSV file with the columns ``t_s``, ``input_tokens`` and ``output_tokens``."""

from __future__ import annotations

import csv
from pathlib import Path

from serve_app.file_errors import said_of
from serve_app.planning import Trace

COLUMNS = ("t_s", "input_tokens", "output_tokens")


class TraceError(ValueError):
    """The file is not a trace; the message names the file, the line and what was expected."""


def read_trace(path: Path) -> Trace:
    """The requests, ordered by arrival.

    Raises:
        TraceError: the file cannot be read, lacks a column, or holds values that are not numbers.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
            if missing:
                raise TraceError(f"{path}: no column {missing[0]!r}; expected {', '.join(COLUMNS)}")
            rows = sorted(_row(path, reader.line_num, row) for row in reader)
    except OSError as error:
        raise TraceError(f"{path}: {said_of(error)}") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}: not a text file: {error}") from error
    if len(rows) < 2:
        raise TraceError(f"{path}: {len(rows)} requests; expected at least two")
    arrivals, prompts, outputs = zip(*rows, strict=True)
    return Trace(arrivals, prompts, outputs)


def _row(path: Path, line: int, row: dict[str, str]) -> tuple[float, int, int]:
    try:
        values = float(row["t_s"]), int(row["input_tokens"]), int(row["output_tokens"])
    except (TypeError, ValueError) as error:
        raise TraceError(f"{path}:{line}: expected numbers: {error}") from error
    if min(values) < 0:
        raise TraceError(f"{path}:{line}: expected no negative numbers")
    return values
