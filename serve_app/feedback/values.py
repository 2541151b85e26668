"""What is kept of feedback, and of the requests that it may be about."""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec

NEGATIVE_BELOW = 0.5
"""A lower score says that the answer was wrong."""


class FeedbackError(Exception):
    """What is kept cannot be read or written."""


class Judged(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A finished request, of whose answer something may be said. It holds no text. ``at``: when it arrived,
    Unix seconds. ``entry``: the cache's entry that gave the answer as a near hit; ``asked``: then the hash of
    the text that it was given to. ``experiment``: what it was in, and its arm (``NAME=ARM``)."""

    tenant: str
    request_id: str
    at: float
    endpoint: str
    model: str | None = None
    key_id: str | None = None
    user: str | None = None
    cache: str | None = None
    entry: str | None = None
    asked: str | None = None
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    ttft_ms: float | None = None
    total_ms: float = 0.0
    experiment: str | None = None


class Said(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one person says of one answer. ``score``: 0 (wrong) to 1 (right). ``messages``: what was asked, if
    the correction came with it."""

    score: float | None = None
    label: str | None = None
    text: str | None = None
    correction: str | None = None
    messages: list[dict[str, Any]] | None = None

    @property
    def is_negative(self) -> bool:
        return self.score is not None and self.score < NEGATIVE_BELOW


class Feedback(msgspec.Struct, frozen=True, kw_only=True):
    """``author``: the user whom the key names, else the key's id, else empty. ``number`` grows with every
    change."""

    tenant: str
    request_id: str
    author: str
    at: float
    said: Said
    request: Judged
    number: int = 0


class Outcome(Enum):
    """``replaced``: the same author had said something else before."""

    KEPT = "kept"
    REPLACED = "replaced"
    UNKNOWN = "unknown"


class Kept(msgspec.Struct, frozen=True):
    """``was_negative``: what the same author had said before was negative."""

    outcome: Outcome
    request: Judged | None = None
    was_negative: bool = False


class FeedbackQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A page, the newest first, of what is older than the number ``after``. ``None`` fits everything."""

    tenant: str | None = None
    model: str | None = None
    request_id: str | None = None
    negative: bool | None = None
    corrected: bool | None = None
    after: int | None = None
    limit: int = 100


class FeedbackPage(msgspec.Struct, frozen=True):
    feedback: tuple[Feedback, ...]
    has_more: bool


def author_of(user: str | None, key_id: str | None) -> str:
    """Who said it: one person with two keys says one thing."""
    return f"user:{user}" if user else f"key:{key_id}" if key_id else ""
