"""What does not fit into a model's context, as vLLM and OpenAI-like servers report it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from serve_app.errors import ErrorDetails

ANSWER_LIMITS = ("max_tokens", "max_completion_tokens")

CONTEXT = re.compile(r"maximum context length (?:is |\()(\d+)|cannot be greater than max_model_len\D*(\d+)")
"""vLLM 0.29: ``TokenizeParams`` and ``get_max_tokens``; OpenAI's sentence begins like the former's."""

PROMPT = re.compile(
    r"contains (?:at least )?(\d+) input tokens|(\d+) in the messages"
    r"|Input length \((\d+)\)|resulted in (\d+) tokens"
)


@dataclass(frozen=True, slots=True)
class Overflow:
    """In tokens. ``prompt`` is ``None`` if the server does not say; vLLM stops counting behind the limit."""

    context: int
    prompt: int | None

    @property
    def is_prompts_alone(self) -> bool:
        return self.prompt is None or self.prompt > self.context


def overflow_of(error: ErrorDetails) -> Overflow | None:
    """``None`` if the error is another one."""
    context = _number(CONTEXT, error.message)
    return None if context is None else Overflow(context, _number(PROMPT, error.message))


def _number(pattern: re.Pattern[str], text: str) -> int | None:
    found = pattern.search(text)
    return None if found is None else next(int(group) for group in found.groups() if group is not None)
