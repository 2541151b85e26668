"""What several tests share: bytes as vLLM 0.29 sends them, and short builders of values."""

from __future__ import annotations

import json
from dataclasses import fields as dataclass_fields
from dataclasses import replace
from typing import Any
from uuid import UUID

from serve_app.cache.entry import CacheEntry
from serve_app.fleet import EngineReport, EngineState, Member
from serve_app.openai.answers import Answer, Usage
from serve_app.openai.requests import Endpoint, ParsedRequest, parse_generation
from serve_app.routing.prompt import blocks_of, prompt_text

CHAT, COMPLETIONS = Endpoint.CHAT, Endpoint.COMPLETIONS

CHAT_EVENTS = (
    b'data: {"id":"chatcmpl-91af5d6baa3a2645","object":"chat.completion.chunk","created":1795238815,'
    b'"model":"smollm2","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,'
    b'"finish_reason":null}],"prompt_token_ids":null,"prompt_text":null}\n\n',
    b'data: {"id":"chatcmpl-91af5d6baa3a2645","object":"chat.completion.chunk","created":1795238815,'
    b'"model":"smollm2","choices":[{"index":0,"delta":{"content":"The"},"logprobs":null,'
    b'"finish_reason":null,"token_ids":null}]}\n\n',
    b'data: {"id":"chatcmpl-91af5d6baa3a2645","object":"chat.completion.chunk","created":1795238815,'
    b'"model":"smollm2","choices":[{"index":0,"delta":{},"logprobs":null,'
    b'"finish_reason":"stop","stop_reason":null,"token_ids":null}]}\n\n',
    b'data: {"id":"chatcmpl-91af5d6baa3a2645","object":"chat.completion.chunk","created":1795238815,'
    b'"model":"smollm2","choices":[],"usage":{"prompt_tokens":37,"total_tokens":45,"completion_tokens":8},'
    b'"system_fingerprint":"vllm-0.29.0-7dcd8c51"}\n\n',
    b"data: [DONE]\n\n",
)

COMPLETION_EVENTS = (
    b'data: {"id":"cmpl-882a2f417105d274","object":"text_completion","created":1795238817,'
    b'"model":"smollm2","choices":[{"index":0,"text":" Paris","logprobs":null,"finish_reason":null,'
    b'"stop_reason":null,"prompt_token_ids":null,"token_ids":null}]}\n\n',
    b'data: {"id":"cmpl-882a2f417105d274","object":"text_completion","created":1795238817,'
    b'"model":"smollm2","choices":[{"index":0,"text":"\\n","logprobs":null,"finish_reason":"stop",'
    b'"stop_reason":null,"prompt_token_ids":null,"token_ids":null}]}\n\n',
    b'data: {"id":"cmpl-882a2f417105d274","object":"text_completion","created":1795238817,'
    b'"model":"smollm2","choices":[],"usage":{"prompt_tokens":5,"total_tokens":8,"completion_tokens":3},'
    b'"system_fingerprint":"vllm-0.29.0-7dcd8c51"}\n\n',
    b"data: [DONE]\n\n",
)

CHAT_JSON = (
    b'{"id":"chatcmpl-8d29d20ddd76987c","object":"chat.completion","created":1795238817,"model":"smollm2",'
    b'"choices":[{"index":0,"message":{"role":"assistant","content":"The capital of France is Paris.",'
    b'"refusal":null,"annotations":null,"audio":null,"function_call":null,"reasoning":null},'
    b'"logprobs":null,"finish_reason":"stop","stop_reason":null,"token_ids":null,"routed_experts":null}],'
    b'"service_tier":null,"system_fingerprint":"vllm-0.29.0-7dcd8c51","usage":{"prompt_tokens":37,'
    b'"total_tokens":45,"completion_tokens":8,"prompt_tokens_details":null,'
    b'"completion_tokens_details":null},"prompt_logprobs":null,"prompt_token_ids":null,"prompt_text":null,'
    b'"kv_transfer_params":null,"ec_transfer_params":null,"metrics":null}'
)

STREAMS = {CHAT: CHAT_EVENTS, COMPLETIONS: COMPLETION_EVENTS}

STREAMED_ANSWERS = {
    CHAT: Answer("smollm2", "The", Usage(37, 8, 45), None, "vllm-0.29.0-7dcd8c51"),
    COMPLETIONS: Answer("smollm2", " Paris\n", Usage(5, 3, 8), None, "vllm-0.29.0-7dcd8c51"),
}

TEXTS = (
    "",
    "a",
    "The capital of France is Paris.",
    " ",
    "\n",
    " \t\r\n ",
    "  leading, inner   and trailing  ",
    "line one\nline two\r\n\r\n- item\n",
    "ends with a newline\n",
    "Größe, Ελλάδα, 東京都, שלום, 👩‍👩‍👧, e\u0301",
    "\u2028\u2029\u0085\x0b\x0c\x1c",
    'quotes " and \\ and \\n, data: [DONE]\n\ndata: {"choices":[]}\n\n',
    "nul \x00 and escape \x1b",
    "word " * 200,
    "x" * 500,
)
"""Texts that framing, cutting or escaping could damage."""


def user(content: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **fields}


def body_of(value: Any) -> bytes:
    return json.dumps(value).encode()


def chat_request(content: Any = "hi", **fields: Any) -> ParsedRequest:
    """A parsed chat request; ``messages`` may be given instead of the last message's content."""
    return parse_generation(CHAT, body_of({"model": "m", "messages": [user(content)], **fields}))


def completion_request(prompt: Any = "hi", **fields: Any) -> ParsedRequest:
    return parse_generation(COMPLETIONS, body_of({"model": "m", "prompt": prompt, **fields}))


def make_answer(text: str = "Paris.", **fields: Any) -> Answer:
    known: dict[str, Any] = {"model": "m", "text": text, "usage": Usage(5, 3, 8)}
    return Answer(**(known | fields))


def make_entry(number: int = 1, **fields: Any) -> CacheEntry:
    """An entry that lives from 0 to 100 s."""
    entry = CacheEntry(
        entry_id=UUID(int=number),
        tenant="t",
        model="m",
        partition="p",
        text="hi",
        answer=make_answer(),
        created_at=0.0,
        expires_at=100.0,
    )
    return replace(entry, **fields)


def make_report(name: str = "a", **fields: Any) -> EngineReport:
    known: dict[str, Any] = {
        "replica_id": name,
        "model": "m",
        "url": f"http://127.0.0.1/{name}",
        "headers": {"x-promptly-secret": "s3cr3t"},
        "state": EngineState.READY,
        "capacity": 64,
    }
    return EngineReport(**(known | fields))


MEMBER_FIELDS = frozenset(field.name for field in dataclass_fields(Member))


def make_member(name: str = "a", in_flight: int = 0, **fields: Any) -> Member:
    """``fields`` are the member's or its report's; the report is taken to count what is in flight."""
    own = {key: fields.pop(key) for key in MEMBER_FIELDS & fields.keys()}
    report = make_report(name, **fields)
    others = max(0, report.running + report.waiting - in_flight)
    known: dict[str, Any] = {"limit": report.capacity, "in_flight": in_flight, "others": others}
    return Member(report, **(known | own))


def prompt_blocks(request: ParsedRequest) -> tuple[int, ...]:
    """The blocks of a request's prompt, without a salt."""
    return blocks_of(prompt_text(request), request.model)
