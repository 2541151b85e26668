"""Partitions and exact keys: which requests may share an answer.

A partition is tenant + model + everything in the request that shapes the answer except the last user
text. Two requests may share an answer only inside one partition; the exact key adds the text itself.

A field that is not known to be harmless makes the request bypass the cache. Streamed and whole answers share
entries. Text completions have exact hits only: a near text has another continuation.

A request that sets a temperature above 0 asks for a fresh sample; evaluation tools do so to count over
many samples. A setting says whether stored answers may replace samples.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec

from serve_app.openai.requests import ChatRequest, Endpoint, ParsedRequest
from serve_app.settings.cache import Sampled

KEY_VERSION = 1
"""Raise it when the rules below change: old entries must not answer under new rules."""

SHAPING_FIELDS = frozenset(
    {
        "messages",
        "prompt",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "max_tokens",
        "max_completion_tokens",
        "min_tokens",
        "stop",
        "stop_token_ids",
        "include_stop_str_in_output",
        "ignore_eos",
        "seed",
        "presence_penalty",
        "frequency_penalty",
        "repetition_penalty",
        "length_penalty",
        "logit_bias",
        "bad_words",
        "allowed_token_ids",
        "response_format",
        "structured_outputs",
        "reasoning_effort",
        "chat_template",
        "chat_template_kwargs",
        "add_generation_prompt",
        "continue_final_message",
        "add_special_tokens",
        "skip_special_tokens",
        "spaces_between_special_tokens",
        "truncate_prompt_tokens",
    }
)
"""Part of the partition. Any other field that is set makes the request bypass the cache."""

IGNORED_FIELDS = frozenset(
    {"model", "stream", "stream_options", "user", "safety_identifier", "n", "logprobs"}
)
"""Fields that are checked elsewhere, or that do not influence the text."""


IMAGES = "*images"
"""The partition's field with the parts of the last message, if that message has images."""

TEXT_MESSAGE_FIELDS = frozenset({"role", "content", "name"})


@dataclass(frozen=True, slots=True)
class CacheKey:
    """The key by which a request is looked up.

    ``semantic`` is false if only the same text may share an answer; for example, a near text that is to be
    continued has another continuation.
    """

    tenant: str
    model: str
    partition: str
    entry_id: UUID
    text: str
    semantic: bool


def cache_key(
    request: ParsedRequest,
    tenant: str,
    model_fingerprint: str,
    partition_by: Collection[str] = (),
    *,
    sampled: Sampled = "never",
    marks: Sequence[str] = (),
) -> CacheKey | None:
    """The key of a request, or ``None`` if its answer could not be replayed faithfully (bypass).

    ``model_fingerprint`` identifies the weights and the engine settings behind ``request.model``;
    ``partition_by`` names fields that identify a tenant's own users, whose answers are then kept apart;
    ``sampled`` is the setting ``cache.sampled``. ``marks``: what else keeps answers apart, such as the
    version of a prompt: two versions may differ in the last message alone, where near texts share answers.
    """
    wants_sample = is_sampled(request)
    if wants_sample and sampled == "never":
        return None
    fields = {name: value for name, value in request.fields.items() if value not in (None, [])}
    if request.endpoint is Endpoint.CHAT and "max_tokens" not in fields and "max_completion_tokens" in fields:
        fields["max_tokens"] = fields.pop("max_completion_tokens")  # one limit with two names
    if fields.keys() - SHAPING_FIELDS - IGNORED_FIELDS or not _is_single_plain_answer(fields):
        return None
    split = _split_text(request, fields)
    if split is None:
        return None
    text, rest = split
    rest["*"] = [KEY_VERSION, request.endpoint.value, tenant, request.model, model_fingerprint]
    if partition_by:
        rest["*by"] = {name: fields.get(name) for name in partition_by}
    if marks:
        rest["*marks"] = list(marks)
    partition = hashlib.sha256(msgspec.json.encode(rest, order="deterministic")).hexdigest()
    digest = hashlib.sha256(f"{partition}\0{text}".encode()).digest()
    return CacheKey(
        tenant=tenant,
        model=request.model,
        partition=partition,
        entry_id=UUID(bytes=digest[:16]),
        text=text,
        semantic=request.endpoint is Endpoint.CHAT
        and not fields.get("continue_final_message")
        and not _has_images(fields)
        and not (wants_sample and sampled == "exact"),
    )


def is_sampled(request: ParsedRequest) -> bool:
    """Whether the client asks for a sample: it sets a temperature above 0, and no seed (with one it asks for
    the same sample again). Without a temperature the client leaves the choice to the server."""
    return bool(request.generation.temperature) and request.fields.get("seed") is None


def _is_text_message(message: Mapping[str, Any]) -> bool:
    """Whether the message has only text: not images, whose content can change at the same address, and not
    tool calls."""
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    return (
        # Clients send a model's own message back with its unset fields.
        all(name in TEXT_MESSAGE_FIELDS or not value for name, value in message.items())
        and isinstance(content, str | list)
        and all(_is_text_part(part) for part in parts)
    )


def _is_known_message(message: Mapping[str, Any]) -> bool:
    """Whether the message has only text, and images that the request itself contains (``data:`` URLs)."""
    content = message.get("content")
    if not isinstance(content, list):
        return _is_text_message(message)
    texts = [part for part in content if not _is_held_image(part)]
    return _is_text_message({**message, "content": texts})


def _is_held_image(part: Mapping[str, Any]) -> bool:
    held = part.get("image_url")
    url = held.get("url") if isinstance(held, dict) else held
    known = part.keys() == {"type", "image_url"} and part["type"] == "image_url"
    return known and isinstance(url, str) and url.startswith("data:")


def _has_images(fields: Mapping[str, Any]) -> bool:
    contents = (message.get("content") for message in fields.get("messages", ()))
    return any(_is_held_image(part) for content in contents if isinstance(content, list) for part in content)


def _text_beside_images(message: Mapping[str, Any]) -> str | None:
    """The text parts of a message with images; ``None`` if it has no image, or a text is not a string."""
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    texts = [part["text"] for part in parts if _is_text_part(part)]
    if len(texts) == len(parts) or not all(isinstance(text, str) for text in texts):
        return None
    return "\n".join(texts)


def _is_text_part(part: Mapping[str, Any]) -> bool:
    return part.keys() == {"type", "text"} and part["type"] == "text"


def _is_single_plain_answer(fields: Mapping[str, Any]) -> bool:
    options = fields.get("stream_options") or {}
    if options and not fields.get("stream"):
        return False  # the engine refuses this: a hit must not hide it
    plain_options = not any(value for name, value in options.items() if name != "include_usage")
    # `logprobs: 0` asks for the log-probability of each token; only `false` asks for none.
    return fields.get("n", 1) == 1 and fields.get("logprobs", False) is False and plain_options


def _split_text(request: ParsedRequest, fields: Mapping[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """The text that is looked up, and all other fields that shape the answer."""
    rest = {name: value for name, value in fields.items() if name not in IGNORED_FIELDS}
    if isinstance(request.generation, ChatRequest):
        *earlier, last = rest.pop("messages")
        text = _user_text(last) if all(map(_is_known_message, earlier)) else None
        rest["earlier"] = earlier
        if text is None and last.get("role") == "user" and all(map(_is_known_message, (*earlier, last))):
            text = _text_beside_images(last)
            rest[IMAGES] = last["content"]
        rest["last"] = {name: value for name, value in last.items() if name != "content"}
    else:
        text = rest.pop("prompt", None)
    return (text, rest) if isinstance(text, str) and text.strip() else None


def _user_text(message: Mapping[str, Any]) -> str | None:
    """The text of a user message that has only text."""
    if message.get("role") != "user":
        return None
    content = message.get("content")
    if isinstance(content, list) and len(content) == 1 and _is_text_part(content[0]):
        content = content[0]["text"]
    return content if isinstance(content, str) else None
