"""What crosses from ``quantize.py`` into llm-compressor's own environment and back: two JSON files."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from quantization.text import Sample


@dataclass(frozen=True, slots=True)
class Job:
    """``sample_tokens``: the most of one sample; ``answer_tokens``: of each answer where the model writes the
    samples itself."""

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
    """``tokens``: of all samples together."""

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
