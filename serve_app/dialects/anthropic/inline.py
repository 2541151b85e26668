"""What becomes of a system message behind the first turn.

Chat templates render system messages in different ways: some at their place, some refuse any but the first.
Joined to the first one, as vLLM's own handler does for the latter, they change the beginning of the prompt,
and an agent that appends one with each turn finds nothing of its conversation in a prefix cache again.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum


class InlineSystem(StrEnum):
    """``SYSTEM``: it stays where it is, as a system message. ``USER``: it stays where it is, as text of the
    user, which every template takes. ``FIRST``: it is joined to the first system message."""

    SYSTEM = "system"
    USER = "user"
    FIRST = "first"


def inline_system_of(user_agent: str | None, clients: Sequence[str], chosen: str) -> InlineSystem:
    """``chosen`` for the ``clients`` (beginnings of `User-Agent`) that append system messages; any other
    client's are joined to the first one, which keeps their rank."""
    known = user_agent is not None and user_agent.startswith(tuple(clients))
    return InlineSystem(chosen) if known else InlineSystem.FIRST


def as_reminder(text: str) -> str:
    """A system message as text of the user, in the marks that Claude Code itself uses."""
    return f"<system-reminder>\n{text}\n</system-reminder>"
