"""A trace: when requests came, and how many tokens they had."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Request:
    """One row of a trace."""

    at_s: float
    input_tokens: int
    output_tokens: int


def read_trace(path: Path) -> list[Request]:
    """The requests of a CSV file. Rows are ``t_s,input_tokens,output_tokens``, as in the Azure LLM inference
    traces of 2023.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not such a table, or its times do not ascend.
    """
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        try:
            trace = [_request(row) for row in rows]
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is no table of t_s,input_tokens,output_tokens: {error!r}") from error
    if not trace or any(after.at_s < before.at_s for before, after in pairwise(trace)):
        raise ValueError(f"{path}: expected rows in ascending order of t_s")
    return trace


def _request(row: Mapping[str, str]) -> Request:
    return Request(float(row["t_s"]), int(row["input_tokens"]), int(row["output_tokens"]))
