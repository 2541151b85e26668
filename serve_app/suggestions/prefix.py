"""Prompts that are alike but for something early in them: engines reuse the work of equal beginnings only."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from serve_app.suggestions.contract import ENOUGH, Observed, Suggestion

LEAST_CHARS = 1024
"""Least text that could be shared; for less a change does not pay."""

MOST_SHARED = 0.25
"""Where more than this part is shared already, the order is not the trouble."""


def early_variation(observed: Observed) -> Iterator[Suggestion]:
    for about, captures in observed.groups().items():
        texts = [_prompt(each) for each in captures]
        if len(texts) < ENOUGH:
            continue
        shared = _shared_chars(texts)
        could = _common_chars(texts)
        if could < LEAST_CHARS or shared > MOST_SHARED * could:
            continue
        yield Suggestion(
            name="early_variation",
            about=about,
            advice="Move what differs from request to request (a date, a name, an id) behind what is always "
            "the same: engines reuse the work of equal beginnings only.",
            evidence=f"{len(texts)} prompts share their first {shared} characters, although about {could} "
            "characters of each stand in nearly all of them.",
            effect=f"About {(could - shared) // 4} more tokens of each prompt could come from the prefix "
            "cache.",
        )


def _shared_chars(texts: list[str]) -> int:
    """How long all are equal: as long as the first and the last in order of the alphabet are."""
    first, last = min(texts), max(texts)
    pairs = enumerate(zip(first, last, strict=False))
    return next((place for place, (one, other) in pairs if one != other), min(len(first), len(last)))


def _prompt(capture: Mapping[str, Any]) -> str:
    asked = capture.get("asked") or {}
    messages = asked.get("messages")
    if not isinstance(messages, list):
        return str(asked.get("prompt") or "")
    parts = (message.get("content") for message in messages)
    return "\n".join(part if isinstance(part, str) else json.dumps(part) for part in parts)


def _common_chars(texts: list[str]) -> int:
    """Characters of a prompt in lines that nearly every prompt has, wherever they stand."""
    lines = Counter(line for text in texts for line in {*_pieces(text)})
    least = 0.9 * len(texts)
    return sum(len(line) for line, count in lines.items() if count >= least)


def _pieces(text: str) -> Iterator[str]:
    """Sentences and lines: what a person would move."""
    for line in text.splitlines():
        yield from (piece for piece in line.replace(". ", ".\n").split("\n") if len(piece) > 3)
