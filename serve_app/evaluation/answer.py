"""An answer: what a target said to a case, and how long it took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    """``tool_calls`` as in a chat completion: ``{"function": {"name": …, "arguments": "{…}"}}``.

    ``error`` says why there is no answer: the target refused, failed or was too late; scorers are then not
    asked. Times in seconds; ``itl_s``: the times between tokens.
    """

    text: str = ""
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    finish_reason: str | None = None
    error: str | None = None
    prompt_tokens: int = 0
    output_tokens: int = 0
    ttft_s: float | None = None
    itl_s: tuple[float, ...] = ()
    e2e_s: float = 0.0
