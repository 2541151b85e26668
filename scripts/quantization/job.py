"""The two JSON files between ``quantize.py`` and the worker in llm-compressor's environment."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from quantization.text import Sample


@dataclass(frozen=True, slots=True)
class Job:
    """``sample_tokens``: most tokens of one sample; ``answer_tokens``: most tokens of each answer if the
    model writes the samples."""

    model: str
    out: str
    scheme: str
    samples: tuple[Sample, ...]
    held: str
    sample_tokens: int
    answer_tokens: int
    seed: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """``tokens``: sum over all samples."""

    perplexity_before: float
    perplexity_after: float
    same_next_token: float
    held_tokens: int
    tokens: int
    versions: dict[str, str]


def write(path: Path, value: Job | Outcome) -> None:
    path.write_text(json.dumps(asdict(value)), encoding="utf-8")


def read_job(path: Path) -> Job:
    values = _read(path)
    return Job(**{**values, "samples": tuple(values["samples"])})


def read_outcome(path: Path) -> Outcome:
    return Outcome(**_read(path))


def _read(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return values
