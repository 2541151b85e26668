"""A captured request as a span: OpenTelemetry's names for generative models, which Langfuse reads, and
OpenInference's, which Phoenix reads. Texts only where they are asked for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

OPERATIONS = {"/v1/chat/completions": "chat", "/v1/completions": "text_completion"}

Value = str | int | float | Sequence[str]


def span_ids(capture: Mapping[str, Any]) -> tuple[int, int]:
    """Of the trace and the span: the same at every export, so that what is sent again replaces itself."""
    name = f"{capture['tenant']}\0{capture['request_id']}\0{capture['at']}".encode()
    digest = hashlib.sha256(name).digest()
    return int.from_bytes(digest[:16], "big") or 1, int.from_bytes(digest[16:24], "big") or 1


def span_times(capture: Mapping[str, Any]) -> tuple[int, int]:
    """Start and end, Unix nanoseconds; it ends where it begins if no more is known of the request."""
    start = int(capture["at"] * 1e9)
    known = capture.get("request") or {}
    return start, start + int((known.get("total_ms") or 0.0) * 1e6)


def span_name(capture: Mapping[str, Any]) -> str:
    return f"{OPERATIONS.get(capture['endpoint'], 'chat')} {capture['model']}"


def span_attributes(capture: Mapping[str, Any]) -> dict[str, Value]:
    """``capture``: one element of `/admin/captures`."""
    known, model = capture.get("request") or {}, capture["model"]
    found: dict[str, Value | None] = {
        "gen_ai.operation.name": OPERATIONS.get(capture["endpoint"], "chat"),
        "gen_ai.provider.name": "promptly",
        "gen_ai.system": "promptly",
        "gen_ai.request.model": model,
        "gen_ai.usage.input_tokens": known.get("prompt_tokens"),
        "gen_ai.usage.output_tokens": known.get("output_tokens"),
        "openinference.span.kind": "LLM",
        "llm.model_name": model,
        "llm.token_count.prompt": known.get("prompt_tokens"),
        "llm.token_count.completion": known.get("output_tokens"),
        "promptly.request_id": capture["request_id"],
        "promptly.tenant": capture["tenant"],
        "promptly.cache": known.get("cache"),
        "promptly.experiment": known.get("experiment"),
        "promptly.ttft_ms": known.get("ttft_ms"),
    }
    reason = known.get("finish_reason")
    if reason:
        found["gen_ai.response.finish_reasons"] = [reason]
    if "asked" in capture:
        found |= _texts(capture["asked"], capture["answer"])
    return {name: value for name, value in found.items() if value is not None}


def _texts(asked: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Value | None]:
    messages = asked.get("messages")
    if not isinstance(messages, list):
        messages = [{"role": "user", "content": asked.get("prompt")}]
    said: dict[str, Any] = {"role": "assistant", "content": answer["text"]}
    if answer["tool_calls"]:
        said["tool_calls"] = answer["tool_calls"]
    return {
        "gen_ai.input.messages": json.dumps([_parted(each) for each in messages], ensure_ascii=False),
        "gen_ai.output.messages": json.dumps([_parted(said)], ensure_ascii=False),
        "input.value": json.dumps(messages, ensure_ascii=False),
        "input.mime_type": "application/json",
        "output.value": answer["text"],
    }


def _parted(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message in OpenTelemetry's form: a role and parts."""
    content = message.get("content")
    parts: list[Any] = []
    if isinstance(content, str) and content:
        parts.append({"type": "text", "content": content})
    elif isinstance(content, list):
        parts += [
            {"type": "text", "content": part["text"]} if "text" in part else part
            for part in content
            if isinstance(part, Mapping)
        ]
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        parts.append(
            {
                "type": "tool_call",
                "id": call.get("id"),
                "name": function.get("name"),
                "arguments": function.get("arguments"),
            }
        )
    return {"role": message.get("role", "user"), "parts": parts}
