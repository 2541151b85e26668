"""What is read of a chat completion: the parts that a response repeats."""

from __future__ import annotations

from typing import Any

import msgspec

from serve_app.errors import UpstreamFailed
from serve_app.openai.chunks import refuse_failed


class Function(msgspec.Struct, frozen=True):
    name: str | None = None
    arguments: str | None = None


class ToolCall(msgspec.Struct, frozen=True):
    """Whole, or a piece of one in a stream. Some servers leave fields out, or write ``null``."""

    index: int | None = None
    id: str | None = None
    function: Function | None = None


class Said(msgspec.Struct, frozen=True):
    """A message, or a piece of one. Servers name the reasoning in two ways."""

    content: str | None = None
    refusal: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None

    @property
    def thought(self) -> str:
        return self.reasoning or self.reasoning_content or ""

    @property
    def text(self) -> str:
        return self.content or self.refusal or ""


class Logprobs(msgspec.Struct, frozen=True):
    content: list[dict[str, Any]] | None = None


class Choice(msgspec.Struct, frozen=True):
    index: int = 0
    delta: Said | None = None
    message: Said | None = None
    finish_reason: str | None = None
    logprobs: Logprobs | None = None


class PromptDetails(msgspec.Struct, frozen=True):
    cached_tokens: int | None = None


class AnswerDetails(msgspec.Struct, frozen=True):
    reasoning_tokens: int | None = None


class Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: AnswerDetails | None = None

    def in_responses(self) -> dict[str, Any]:
        """The usage in the words of the Responses API; details that an engine does not give are 0."""
        cached = self.prompt_tokens_details and self.prompt_tokens_details.cached_tokens
        thought = self.completion_tokens_details and self.completion_tokens_details.reasoning_tokens
        return {
            "input_tokens": self.prompt_tokens,
            "input_tokens_details": {"cached_tokens": cached or 0, "cache_write_tokens": 0},
            "output_tokens": self.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": thought or 0},
            "total_tokens": self.total_tokens or self.prompt_tokens + self.completion_tokens,
        }


class Completion(msgspec.Struct, frozen=True):
    """A chat completion, or a chunk of one."""

    choices: list[Choice] | None
    error: Any = None
    model: str | None = None
    usage: Usage | None = None


DECODER = msgspec.json.Decoder(Completion)


def completion(data: bytes) -> Completion:
    """Raises: UpstreamFailed: it is none, or tells of a failure."""
    try:
        answer = DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UpstreamFailed(
            f"The engine's answer is no chat completion: {error}.", code="upstream_failed"
        ) from error
    refuse_failed(answer.error, answer.choices)
    return answer
