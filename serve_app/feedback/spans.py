"""A captured request as a span: OpenTelemetry's names for generative models, which Langfuse reads, and
OpenInference's, which Phoenix reads. Texts only where they are asked for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

OPERATIONS = {"/v1/chat/completions": "chat", "/v1/completions": "text_completion"}

PARAMETERS = ("temperature", "top_p", "top_k", "max_tokens", "max_completion_tokens", "seed")
"""Parameters of a request that both tools show."""

Value = str | int | float | Sequence[str]


def span_ids(capture: Mapping[str, Any]) -> tuple[int, int]:
    """Ids of trace and span: the same at every export, so that a repeated export replaces the first."""
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
    known = capture.get("request") or {}
    found = _of_opentelemetry(capture, known) | _of_langfuse(capture, known) | _of_phoenix(capture, known)
    if "asked" in capture:
        found |= _texts(capture["asked"], capture["answer"])
    return {name: value for name, value in found.items() if value is not None}


def _of_opentelemetry(capture: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Value | None]:
    reason = known.get("finish_reason")
    return {
        "gen_ai.operation.name": OPERATIONS.get(capture["endpoint"], "chat"),
        "gen_ai.provider.name": "promptly",
        "gen_ai.system": "promptly",
        "gen_ai.request.model": capture["model"],
        "gen_ai.response.model": known.get("model"),
        "gen_ai.response.finish_reasons": [reason] if reason else None,
        "gen_ai.usage.input_tokens": known.get("prompt_tokens"),
        "gen_ai.usage.output_tokens": known.get("output_tokens"),
        "promptly.request_id": capture["request_id"],
        "promptly.tenant": capture["tenant"],
        "promptly.cache": known.get("cache"),
        "promptly.experiment": known.get("experiment"),
        "promptly.ttft_ms": known.get("ttft_ms"),
    }


def _of_langfuse(capture: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Value | None]:
    """What it shows as a generation, with its time to first token; tags are what its lists filter by."""
    first = None
    if known.get("ttft_ms") is not None:
        at = datetime.fromtimestamp(capture["at"] + known["ttft_ms"] / 1000, UTC)
        first = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {
        "langfuse.observation.type": "generation",
        "langfuse.observation.completion_start_time": None if first is None else json.dumps(first),
        "langfuse.trace.name": span_name(capture),
        "langfuse.trace.tags": _tags(capture, known),
    }


def _of_phoenix(capture: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Value | None]:
    """OpenInference's names."""
    prompt, output = known.get("prompt_tokens"), known.get("output_tokens")
    about = {name: capture[name] for name in ("tenant", "request_id")}
    about |= {name: known[name] for name in ("cache", "experiment", "ttft_ms") if known.get(name) is not None}
    return {
        "openinference.span.kind": "LLM",
        "llm.model_name": capture["model"],
        "llm.provider": "promptly",
        "llm.token_count.prompt": prompt,
        "llm.token_count.completion": output,
        "llm.token_count.total": None if prompt is None or output is None else prompt + output,
        "llm.finish_reason": known.get("finish_reason"),
        "metadata": json.dumps(about),
        "tag.tags": _tags(capture, known),
    }


def _tags(capture: Mapping[str, Any], known: Mapping[str, Any]) -> list[str]:
    named = (capture["tenant"], known.get("cache"), known.get("experiment"))
    return [str(name) for name in named if name]


def _texts(asked: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Value | None]:
    messages = asked.get("messages")
    if not isinstance(messages, list):
        messages = [{"role": "user", "content": asked.get("prompt")}]
    said: dict[str, Any] = {"role": "assistant", "content": answer["text"]}
    if answer["tool_calls"]:
        said["tool_calls"] = answer["tool_calls"]
    given = {name: asked[name] for name in PARAMETERS if isinstance(asked.get(name), int | float)}
    found: dict[str, Value | None] = {
        "gen_ai.input.messages": json.dumps([_parted(each) for each in messages], ensure_ascii=False),
        "gen_ai.output.messages": json.dumps([_parted(said)], ensure_ascii=False),
        "input.value": json.dumps(messages, ensure_ascii=False),
        "input.mime_type": "application/json",
        "output.value": answer["text"],
        "output.mime_type": "text/plain",
        "llm.invocation_parameters": json.dumps(given),
    }
    found |= {f"gen_ai.request.{name}": value for name, value in given.items()}
    for number, message in enumerate(messages):
        found |= _flat(f"llm.input_messages.{number}.message", message)
    return found | _flat("llm.output_messages.0.message", said)


def _flat(prefix: str, message: Mapping[str, Any]) -> dict[str, Value | None]:
    """A message in OpenInference's form: an attribute for each leaf."""
    content = message.get("content")
    found: dict[str, Value | None] = {f"{prefix}.role": str(message.get("role", "user"))}
    if isinstance(content, str):
        found[f"{prefix}.content"] = content
    for number, part in enumerate(content if isinstance(content, list) else ()):
        if isinstance(part, Mapping) and isinstance(part.get("text"), str):
            place = f"{prefix}.contents.{number}.message_content"
            found |= {f"{place}.type": "text", f"{place}.text": part["text"]}
    for number, call in enumerate(message.get("tool_calls") or ()):
        function, place = call.get("function") or {}, f"{prefix}.tool_calls.{number}.tool_call"
        found |= {
            f"{place}.id": call.get("id"),
            f"{place}.function.name": function.get("name"),
            f"{place}.function.arguments": function.get("arguments"),
        }
    return found


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
