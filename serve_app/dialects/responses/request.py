"""A request of the Responses API: what it asks for, and the chat completion request that it stands for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec

from serve_app.dialects.responses.items import listed, messages_of
from serve_app.dialects.responses.metadata import refuse_metadata
from serve_app.dialects.responses.tools import Tools, read_choice, read_tools
from serve_app.errors import BadRequest
from serve_app.openai.leniency import PLAIN_RESPONSES, plainly
from serve_app.openai.requests import convert

PositiveInt = Annotated[int, msgspec.Meta(ge=1)]

LOGPROBS = "message.output_text.logprobs"
ENCRYPTED_REASONING = "reasoning.encrypted_content"

SAME = (
    "model",
    "stream",
    "temperature",
    "top_p",
    "user",
    "safety_identifier",
    "top_k",
    "min_p",
    "min_tokens",
    "seed",
    "stop",
    "stop_token_ids",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logit_bias",
    "ignore_eos",
    "skip_special_tokens",
    "include_stop_str_in_output",
    "structured_outputs",
    "chat_template_kwargs",
    "mm_processor_kwargs",
    "media_io_kwargs",
    "cache_salt",
    "priority",
    "vllm_xargs",
)
"""Fields that mean the same in a chat completion request: OpenAI's, and vLLM's own of both APIs."""

NAMES = {
    "messages": "input",
    "max_completion_tokens": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "truncate_prompt_tokens": "truncation",
    "reasoning_effort": "reasoning.effort",
    "response_format": "text.format",
    "logprobs": "include",
    "stream_options": "stream",
}
"""The request's own names of fields of the chat, for errors."""

REFUSED = {
    "moderation": "nothing is moderated here",
    "context_management": "no context is compacted here",
}
"""Fields whose silent loss would change what a client relies on. Others that are not known are ignored."""

ECHOED = (
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "previous_response_id",
    "prompt",
    "prompt_cache_key",
    "reasoning",
    "safety_identifier",
    "temperature",
    "text",
    "top_logprobs",
    "top_p",
    "user",
)
"""Fields that a response repeats as they were sent, ``null`` if they were not."""


class ConversationRef(msgspec.Struct, frozen=True):
    id: str


class ResponsesRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that Promptly reads; an engine checks those that it is sent."""

    model: str
    input: str | list[dict[str, Any]] | None = None
    instructions: str | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: PositiveInt | None = None
    text: dict[str, Any] | None = None
    reasoning: dict[str, Any] | None = None
    include: list[str] | None = None
    top_logprobs: Annotated[int, msgspec.Meta(ge=0, le=20)] | None = None
    metadata: dict[str, str] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    previous_response_id: str | None = None
    conversation: str | ConversationRef | None = None
    store: bool | None = None
    background: bool | None = None
    stream: bool | None = None
    prompt_cache_key: str | None = None

    @property
    def wants_store(self) -> bool:
        """OpenAI's default is to store."""
        return self.store is not False

    @property
    def conversation_id(self) -> str | None:
        given = self.conversation
        return given.id if isinstance(given, ConversationRef) else given


@dataclass(frozen=True, slots=True)
class TypedRequest:
    """A request that was read, before its history is known. ``items`` are its own, each with a type."""

    request: ResponsesRequest
    fields: Mapping[str, Any]
    items: Sequence[Mapping[str, Any]]
    tools: Tools
    choice: Any


def read(fields: Mapping[str, Any]) -> TypedRequest:
    """Raises: BadRequest: a field, an item or a tool is not known or wrong; ``param`` says which."""
    fields = plainly(fields, PLAIN_RESPONSES)
    request = convert(fields, ResponsesRequest)
    for name, why in REFUSED.items():
        if fields.get(name) is not None:
            raise BadRequest(f"`{name}`: {why}.", param=name, code="unsupported_parameter")
    if request.previous_response_id is not None and request.conversation is not None:
        raise BadRequest(
            "Send `previous_response_id` or `conversation`, not both.",
            param="conversation",
            code="mutually_exclusive_parameters",
        )
    if isinstance(fields.get("prompt"), str):
        raise BadRequest("`prompt` must be an object with an `id`.", param="prompt", code="invalid_value")
    if request.background and not request.wants_store:
        raise BadRequest("`background` needs `store`: its answer is fetched later.", param="background")
    starts = (fields.get("input"), fields.get("prompt"), request.previous_response_id, request.conversation)
    if all(start is None for start in starts):
        raise BadRequest("Missing required field `input`.", param="input", code="missing_field")
    refuse_metadata(request.metadata or {})
    tools = read_tools(request.tools or ())
    choice, tools = read_choice(request.tool_choice, tools)
    if choice == "required" and not tools.functions:
        raise BadRequest(
            "`tool_choice` asks for a tool, and none may be called.",
            param="tool_choice",
            code="invalid_value",
        )
    return TypedRequest(
        request, fields, listed(() if request.input is None else request.input), tools, choice
    )


def chat_fields(
    asked: TypedRequest, history: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The chat completion request. It is what a chat client would send for the same conversation: unset
    fields are left out, so that both share cached answers.

    Raises:
        BadRequest: an item or the format is wrong.
    """
    request, sent = asked.request, asked.fields
    fields: dict[str, Any] = {name: sent[name] for name in SAME if sent.get(name) is not None}
    fields["messages"] = messages_of(history, new, request.instructions, alone=sent.get("prompt") is None)
    if request.stream:
        fields["stream_options"] = {"include_usage": True}
    if request.max_output_tokens is not None:
        fields["max_completion_tokens"] = request.max_output_tokens
    if request.truncation == "auto":
        fields["truncate_prompt_tokens"] = -1  # vLLM's: as many as fit
    effort = (request.reasoning or {}).get("effort")
    if not isinstance(effort, str | None):
        param = "reasoning.effort"
        raise BadRequest(f"`{param}` must be a text.", param=param, code="invalid_value")
    if effort is not None:
        fields["reasoning_effort"] = effort
    if LOGPROBS in (request.include or ()):
        fields |= {"logprobs": True, "top_logprobs": request.top_logprobs or 0}
    return fields | _format(request.text) | _tools(asked)


def _tools(asked: TypedRequest) -> dict[str, Any]:
    """Nothing without tools: engines refuse a choice among none."""
    if not asked.tools.functions:
        return {}
    fields: dict[str, Any] = {"tools": list(asked.tools.functions)}
    if asked.choice is not None:
        fields["tool_choice"] = asked.choice
    if asked.request.parallel_tool_calls is not None:
        fields["parallel_tool_calls"] = asked.request.parallel_tool_calls
    return fields


def _format(text: Mapping[str, Any] | None) -> dict[str, Any]:
    """``text.format`` as ``response_format``."""
    form = (text or {}).get("format")
    if form is None:
        return {}
    kind = form.get("type") if isinstance(form, dict) else None
    if kind == "text":
        return {}
    if kind == "json_object":
        return {"response_format": {"type": "json_object"}}
    if kind != "json_schema" or not isinstance(form.get("schema"), dict):
        raise BadRequest(
            "`text.format` must be `text`, `json_object`, or `json_schema` with a `schema`.",
            param="text.format",
            code="invalid_value",
        )
    named = {
        name: form[name] for name in ("name", "description", "schema", "strict") if form.get(name) is not None
    }
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", **named}}}


def echo(asked: TypedRequest, response_id: str, *, stored: bool) -> dict[str, Any]:
    """What a response says of its request. ``stored``: it will be found again."""
    request, sent = asked.request, asked.fields
    conversation = request.conversation_id
    return {
        "id": response_id,
        "object": "response",
        "store": stored,  # before all that a client wrote (see ``not_stored``)
        **{name: sent.get(name) for name in ECHOED},
        "background": bool(request.background),
        "conversation": None if conversation is None else {"id": conversation},
        "parallel_tool_calls": request.parallel_tool_calls is not False,
        "service_tier": "default",
        "text": request.text or {"format": {"type": "text"}},
        "tool_choice": request.tool_choice or "auto",
        "tools": request.tools or [],
        "truncation": request.truncation or "disabled",
    }


def not_stored(last: bytes) -> bytes:
    """The last bytes of an answer for a client whose response could not be stored after all."""
    return last.replace(b'"store":true', b'"store":false', 1)
