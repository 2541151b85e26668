"""Texts for calibration and for measuring: from files, or from this project, without licence terms.

Without a file, the model writes the samples: it answers questions that are built here, so the samples look
like its output in use, and no data set is needed (Williams and Aletras, "Self-calibration for Language Model
Quantization and Pruning", arXiv:2410.17170). The held-out text was written for this project.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quantization.schemes import QuantizeError

LEAST_SAMPLES, MOST_SAMPLES = 128, 512
LEAST_HELD_CHARACTERS = 2000
HELD_TEXT = Path(__file__).parent / "held.txt"

FORMS = (
    "Explain {} to a ten-year-old.",
    "Write a short story about {}.",
    "What are the three most important things to know about {}?",
    "Write an email to a colleague about {}.",
    "Compare the advantages and disadvantages of {}.",
    "Give step-by-step instructions for a beginner who is interested in {}.",
    "Summarise the history of {} in a few sentences.",
    "Write a dialogue between two friends about {}.",
)
TOPICS = (
    *("bicycles", "bread", "bridges", "volcanoes", "chess", "clocks", "coffee", "compilers"),
    *("the ocean", "databases", "dogs", "earthquakes", "electricity", "farming", "rivers", "fractions"),
    *("gardens", "glass", "gravity", "music", "honey", "hospitals", "the internet", "insurance"),
    *("kites", "languages", "lighthouses", "libraries", "magnets", "maps", "medicine", "money"),
    *("mountains", "museums", "newspapers", "painting", "paper", "photography", "planets", "poetry"),
    *("probability", "railways", "rain", "recycling", "robots", "running", "sailing", "salt"),
    *("satellites", "schools", "seasons", "sleep", "soap", "solar power", "spiders", "sports"),
    *("steel", "swimming", "telescopes", "theatre", "trees", "vaccines", "wind", "writing"),
)

Sample = dict[str, Any]
"""``{"text": ...}``, ``{"messages": [...]}`` for the chat template, or ``{"question": ...}`` for the model to
answer."""


@dataclass(frozen=True, slots=True)
class Samples:
    """``origin`` is shown on the card."""

    origin: str
    items: tuple[Sample, ...]


def questions(count: int, seed: int) -> Samples:
    """``count`` different questions, at most ``MOST_SAMPLES``."""
    every = [form.format(topic) for form in FORMS for topic in TOPICS]
    random.Random(seed).shuffle(every)
    return Samples("written by the model itself", tuple({"question": text} for text in every[:count]))


def read_samples(path: Path, count: int, seed: int) -> Samples:
    """``count`` of a file's samples, in random order: JSON lines with ``text`` or ``messages``, or plain
    text with an empty line between samples.

    Raises:
        QuantizeError: the file cannot be read, or holds too few.
    """
    found = _json_lines(path) if path.suffix == ".jsonl" else _paragraphs(path)
    if len(found) < count:
        enough = f"use --samples {len(found)}" if len(found) >= LEAST_SAMPLES else f"at least {LEAST_SAMPLES}"
        works = enough if len(found) >= LEAST_SAMPLES else f"{enough} are needed, or leave --calibration out"
        raise QuantizeError(f"--calibration {path}: {len(found)} samples, and --samples is {count}; {works}")
    random.Random(seed).shuffle(found)
    return Samples(path.name, tuple(found[:count]))


def check_count(count: int) -> None:
    """Raises: QuantizeError: too few or too many samples are asked for."""
    if not LEAST_SAMPLES <= count <= MOST_SAMPLES:
        raise QuantizeError(f"--samples {count}: expected {LEAST_SAMPLES} to {MOST_SAMPLES}")


def held_text(path: Path) -> str:
    """Raises: QuantizeError: the file cannot be read, or its text is too short."""
    text = _read("--held", path)
    if len(text) < LEAST_HELD_CHARACTERS:
        raise QuantizeError(
            f"--held {path}: {len(text)} characters; at least {LEAST_HELD_CHARACTERS} are needed"
        )
    return text


def _json_lines(path: Path) -> list[Sample]:
    lines = _read("--calibration", path).splitlines()
    return [_sample(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]


def _sample(path: Path, number: int, line: str) -> Sample:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise QuantizeError(f"--calibration {path}: line {number} holds no JSON") from error
    if isinstance(value, dict):
        if isinstance(value.get("text"), str) and value["text"].strip():
            return {"text": value["text"]}
        if isinstance(value.get("messages"), list) and value["messages"]:
            return {"messages": value["messages"]}
    raise QuantizeError(f'--calibration {path}: line {number} has neither "text" nor "messages"')


def _paragraphs(path: Path) -> list[Sample]:
    pieces = _read("--calibration", path).split("\n\n")
    return [{"text": piece.strip()} for piece in pieces if piece.strip()]


def _read(argument: str, path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise QuantizeError(f"{argument} {path}: {reason}; give a .jsonl or .txt file") from error
