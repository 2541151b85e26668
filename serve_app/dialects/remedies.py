"""A translated request in another form, after a member refused it as it is.

Its client wrote none of what is changed here: it cannot know the model's context, what its chat template
takes, or which efforts it has. What a chat client wrote itself is never changed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from serve_app.dialects.anthropic.inline import as_reminder
from serve_app.errors import ErrorDetails
from serve_app.openai.overflow import ANSWER_LIMITS, overflow_of

ROLES = re.compile(r"roles must alternate|unexpected role|system (?:message|role)", re.IGNORECASE)
"""What chat templates raise, and mistral_common: vLLM passes their words on."""

NO_SYSTEM = re.compile(r"system role not supported", re.IGNORECASE)
"""Gemma's templates."""

EFFORT = re.compile(r"reasoning_effort=\S+ is not supported")
"""vLLM's words for gpt-oss, which has three."""

EFFORTS = {"max": "high", "xhigh": "high", "minimal": "low", "none": "low"}
"""The nearest of low, medium and high."""

Fields = Mapping[str, Any]


def rewritten(fields: Fields, refused: ErrorDetails) -> dict[str, Any] | None:
    """The fields of a chat as the member may take them; ``None`` if nothing is known to help."""
    if overflow_of(refused) is not None:
        return without_limit(fields)
    if ROLES.search(refused.message):
        return alternating(fields, has_system=NO_SYSTEM.search(refused.message) is None)
    effort = fields.get("reasoning_effort")
    if EFFORT.search(refused.message) and isinstance(effort, str) and effort in EFFORTS:
        return {**fields, "reasoning_effort": EFFORTS[effort]}
    return None


def without_limit(fields: Fields) -> dict[str, Any] | None:
    """The answer then gets what the prompt leaves of the context. ``None``: there is no limit."""
    if set(ANSWER_LIMITS).isdisjoint(fields):
        return None
    return {name: value for name, value in fields.items() if name not in ANSWER_LIMITS}


def alternating(fields: Fields, *, has_system: bool) -> dict[str, Any] | None:
    """Messages for a template that takes one system message, the first (``has_system``) or none, and wants
    turns to alternate: other system messages become text of the user, and neighbours are joined. Each message
    is changed by those before it alone, so a conversation that grows keeps its prefix. ``None``: they are so
    already."""
    messages = fields.get("messages")
    if not isinstance(messages, list):
        return None
    rewritten_turns: list[dict[str, Any]] = []
    for place, given in enumerate(messages):
        message = given
        if given["role"] == "system" and (place > 0 or not has_system):
            message = {"role": "user", "content": _as_users(given["content"], is_first=place == 0)}
        last = rewritten_turns[-1] if rewritten_turns else None
        if last is not None and last["role"] == message["role"] == "user":
            rewritten_turns[-1] = {**last, "content": _joined(last["content"], message["content"])}
        else:
            rewritten_turns.append(message)
    return None if rewritten_turns == messages else {**fields, "messages": rewritten_turns}


def _as_users(content: Any, *, is_first: bool) -> Any:
    return content if is_first or not isinstance(content, str) else as_reminder(content)


def _joined(first: Any, second: Any) -> str | list[dict[str, Any]]:
    """One text where both are texts."""
    parts = [*_parts(first), *_parts(second)]
    if all(part.get("type") == "text" for part in parts):
        return "\n\n".join(part["text"] for part in parts)
    return parts


def _parts(content: Any) -> Sequence[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content or []
