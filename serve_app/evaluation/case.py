"""A case: one task, with what is expected of an answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Assertion:
    """One scorer by its name in the registry, with its options. ``weight``: its part of the case's score,
    above 0; only the ratio of the parts counts."""

    scorer: str
    options: Mapping[str, Any] = field(default_factory=dict)
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Case:
    """``messages`` are complete: variables are already put in. They are empty where the suite has variables
    only, for a target that brings the prompt."""

    id: str
    messages: tuple[Mapping[str, Any], ...]
    expected: Any = None
    assertions: tuple[Assertion, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    """More fields of the request: ``tools``, ``max_tokens``, ``response_format`` …"""
    origin: str = ""
    """File and line, for messages."""

    @property
    def question(self) -> str:
        """The text of the last message of the user; empty if there is none."""
        for message in reversed(self.messages):
            if message.get("role") == "user":
                return _text(message.get("content"))
        return ""


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list | tuple) else ()
    return "\n".join(part["text"] for part in parts if isinstance(part, Mapping) and "text" in part)
