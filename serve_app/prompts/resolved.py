"""A prompt as one request gets it, and its place before the request's own messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

INSTRUCTIONS = frozenset({"system", "developer"})


@dataclass(frozen=True, slots=True)
class Resolved:
    """``digest``: of the version's file."""

    id: str
    version: str
    digest: str
    messages: tuple[Mapping[str, str], ...]

    @property
    def label(self) -> str:
        """What the header ``x-prompt`` says."""
        return f"{self.id}@{self.version}"

    @property
    def mark(self) -> str:
        """Equal marks: the same version with the same file. The cache keeps all others apart."""
        return f"prompt {self.id} {self.version} {self.digest}"


def placed(prompt: Resolved, own: Sequence[Any]) -> list[Any]:
    """The prompt's messages, then the request's. Two that give instructions become one where they meet: the
    templates of many models take one such message, at the beginning."""
    messages: list[Any] = [dict(each) for each in prompt.messages]
    rest = list(own)
    while rest and _meets(messages[-1], rest[0]):
        messages[-1]["content"] += "\n\n" + rest.pop(0)["content"]
    return messages + rest


def _meets(last: Mapping[str, str], first: Any) -> bool:
    return (
        isinstance(first, dict)
        and last["role"] in INSTRUCTIONS
        and first.get("role") in INSTRUCTIONS
        and isinstance(first.get("content"), str)
        and first.keys() == {"role", "content"}
    )
