"""Which requests have answers that another engine can continue without a visible difference.

State that an engine keeps about the answer besides its tokens would be lost, and so would everything that a
text completion cannot express. So only fields that are known to be neither are allowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from serve_app.openai.requests import ChatRequest, CompletionRequest, Endpoint, ParsedRequest

KEPT_FIELDS = frozenset(
    {
        "model",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "repetition_penalty",  # counts the prompt's tokens like the answer's
        "logit_bias",
        "allowed_token_ids",
        "seed",
        "stop",
        "stop_token_ids",
        "include_stop_str_in_output",
        "ignore_eos",
        "skip_special_tokens",
        "priority",
        "cache_salt",
        "stream_interval",
    }
)
"""Fields that mean the same for the rest of an answer as for the whole."""

SPENT_FIELDS = frozenset(
    {
        "messages",
        "prompt",
        "tools",
        "reasoning_effort",
        "documents",
        "chat_template",
        "chat_template_kwargs",
        "add_generation_prompt",
        "continue_final_message",
        "add_special_tokens",
        "truncate_prompt_tokens",
        "truncation_side",
        "request_id",
        "parallel_tool_calls",
        "length_penalty",  # of beam search only
        "user",
    }
)
"""Fields that only shaped the prompt, whose tokens are now known, or that have no effect."""

COUNTED_FIELDS = frozenset({"stream", "stream_options", "max_tokens", "max_completion_tokens", "min_tokens"})
"""Fields that are rewritten for the rest of the answer."""

PLAIN_VALUES: Mapping[str, Any] = {
    "n": 1,
    "best_of": 1,
    "use_beam_search": False,
    "echo": False,
    "top_logprobs": 0,
    "presence_penalty": 0,  # this and the next count the answer's tokens only: a new engine sees none
    "frequency_penalty": 0,
    "response_format": {"type": "text"},
    "tool_choice": "none",
    "include_reasoning": True,
    "spaces_between_special_tokens": True,  # else the text of a token depends on the one before it
    "return_token_ids": False,
    "return_prompt_text": False,
}
"""Fields that are allowed with this value only."""


CHOICE_OF_TOOLS = "tool_choice"

HARMLESS_FIELDS = KEPT_FIELDS | SPENT_FIELDS | COUNTED_FIELDS
PLAIN_CHAT_VALUES: Mapping[str, Any] = {**PLAIN_VALUES, "logprobs": False}
"""Values that ask for nothing in a chat. In a text completion ``logprobs: false`` is the number 0, which asks
for the log-probability of each token."""


NOT_STREAMED = "not streamed: nothing is sent before the whole answer is there"


@dataclass(frozen=True, slots=True)
class Resumable:
    """A request whose stream another engine can go on with: ``as_text``, asked for a text completion, which
    every vLLM can; ``as_chat``, asked for the same chat, which an engine can that may be told the tokens so
    far."""

    request: ParsedRequest
    as_text: bool
    as_chat: bool


def resumable(request: ParsedRequest) -> Resumable | None:
    """``None``: no engine can go on with it."""
    as_text, as_chat = obstacle(request) is None, chat_obstacle(request) is None
    return Resumable(request, as_text, as_chat) if as_text or as_chat else None


def obstacle(request: ParsedRequest) -> str | None:
    """Why a text completion could not continue an interrupted answer faithfully; ``None`` if it could."""
    if not request.generation.wants_stream:
        return NOT_STREAMED
    fields = _set_fields(request)
    return (
        _unknown_field(request.endpoint, fields)
        or _forgetful_sampling(fields)
        or _lagging_text(request.generation.stop)
        or _more_than_text(request.generation, fields)
    )


def chat_obstacle(request: ParsedRequest) -> str | None:
    """Why an engine that is told the tokens so far could not go on with a chat; ``None`` if it could, unless
    a grammar guides the answer, which the engine knows. It sees the whole request: tools, images, stop texts
    and reasoning are no obstacles."""
    if not request.generation.wants_stream:
        return NOT_STREAMED
    if request.endpoint is not Endpoint.CHAT:
        return "no chat"
    fields = _set_fields(request)
    fields.pop(CHOICE_OF_TOOLS, None)
    return _unknown_field(request.endpoint, fields) or _forgetful_sampling(fields)


def _set_fields(request: ParsedRequest) -> dict[str, Any]:
    return {name: value for name, value in request.fields.items() if value not in (None, [])}


def _unknown_field(endpoint: Endpoint, fields: Mapping[str, Any]) -> str | None:
    plain = PLAIN_CHAT_VALUES if endpoint is Endpoint.CHAT else PLAIN_VALUES
    for name, value in fields.items():
        if name in plain:
            if value != plain[name]:
                return f"`{name}` is set"
        elif name not in HARMLESS_FIELDS:
            return f"`{name}` is set"
    options = fields.get("stream_options") or {}
    other = next((name for name, value in options.items() if value and name != "include_usage"), None)
    return f"`stream_options.{other}` is set" if other else None


def _forgetful_sampling(fields: Mapping[str, Any]) -> str | None:
    """A seed promises the same text every time, but a new engine would restart its random numbers."""
    if "seed" in fields and fields.get("temperature") != 0:
        return "sampled with a seed"
    return None


def _lagging_text(stop: str | list[str] | None) -> str | None:
    """vLLM searches only new text for stop texts, and holds text back while it may be the beginning of one.
    The text then lags behind the tokens by a length that only a tokenizer knows. One character cannot be
    split."""
    stops = [stop] if isinstance(stop, str) else stop or []
    return "`stop` is longer than a character" if any(len(text) > 1 for text in stops) else None


def _more_than_text(generation: ChatRequest | CompletionRequest, fields: Mapping[str, Any]) -> str | None:
    if isinstance(generation, CompletionRequest):
        # A list of prompts gives a list of answers; prompt embeddings have no tokens.
        return None if _is_one_prompt(generation.prompt) else "`prompt` is not one text"
    if "tools" in fields and fields.get("tool_choice") != "none":
        return "`tools` is set"
    # Images and sounds are placeholders in the prompt: its tokens do not contain all of it.
    if not all(_is_text(message.content) for message in generation.messages):
        return "`messages` holds more than text"
    return None


def _is_one_prompt(prompt: str | list[Any] | None) -> bool:
    return isinstance(prompt, str) or (bool(prompt) and all(isinstance(token, int) for token in prompt or []))


def _is_text(content: str | list[dict[str, Any]] | None) -> bool:
    parts = content if isinstance(content, list) else []
    return all(part.get("type") == "text" and isinstance(part.get("text"), str) for part in parts)
