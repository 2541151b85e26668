"""Writes a stored answer in the format in which the engine would have sent it.

The chunks and their keys, nulls included, are those of vLLM 0.29. An end-to-end test compares a live stream
with a replayed one, and so notices a vLLM that changes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from serve_app.openai import sse
from serve_app.openai.answers import Answer, Usage
from serve_app.openai.requests import Endpoint

WORD = re.compile(r"\s*\S+\s*$|\s*\S+|\s+")
"""One piece of a replayed stream: a word with the space before it, about one token."""

UNSET_IN_RESPONSE = {
    Endpoint.CHAT: (
        "prompt_logprobs",
        "prompt_token_ids",
        "prompt_text",
        "kv_transfer_params",
        "ec_transfer_params",
        "metrics",
    ),
    Endpoint.COMPLETIONS: ("kv_transfer_params", "ec_transfer_params", "metrics"),
}
"""vLLM's own fields of a whole response; null unless a request asks for them (such requests bypass)."""

ID_PREFIX = {Endpoint.CHAT: "chatcmpl", Endpoint.COMPLETIONS: "cmpl"}


def as_json(answer: Answer, endpoint: Endpoint, request_id: str, created: int) -> bytes:
    """The body of a response that is not streamed. ``created`` is in Unix seconds."""
    return msgspec.json.encode(
        {
            "id": f"{ID_PREFIX[endpoint]}-{request_id}",
            "object": "chat.completion" if endpoint is Endpoint.CHAT else "text_completion",
            "created": created,
            "model": answer.model,
            "choices": [_choice(answer, endpoint)],
            "service_tier": None,
            "system_fingerprint": answer.system_fingerprint,
            "usage": _usage(answer.usage)
            | {"prompt_tokens_details": None, "completion_tokens_details": None},
            **dict.fromkeys(UNSET_IN_RESPONSE[endpoint]),
        }
    )


def as_stream(
    answer: Answer, endpoint: Endpoint, request_id: str, created: int, *, with_usage: bool
) -> Iterator[bytes]:
    """The events of a streamed response, ``[DONE]`` included."""
    head = {
        "id": f"{ID_PREFIX[endpoint]}-{request_id}",
        "object": "chat.completion.chunk" if endpoint is Endpoint.CHAT else "text_completion",
        "created": created,
        "model": answer.model,
    }
    chunks = _chat_chunks(answer) if endpoint is Endpoint.CHAT else _text_chunks(answer)
    for chunk in chunks:
        yield sse.json_event(head | chunk)
    if with_usage:
        tail: dict[str, Any] = {
            "choices": [],
            "usage": _usage(answer.usage),
            "system_fingerprint": answer.system_fingerprint,
        }
        yield sse.json_event(head | tail)
    yield sse.event(sse.DONE)


def pieces(text: str) -> list[str]:
    """``text`` split into words; joined they give ``text`` again."""
    return WORD.findall(text)


def _chat_chunks(answer: Answer) -> Iterator[dict[str, Any]]:
    role = {"role": "assistant", "content": ""}
    yield {
        "choices": [{"index": 0, "delta": role, "logprobs": None, "finish_reason": None}],
        "prompt_token_ids": None,
        "prompt_text": None,
    }
    for piece in pieces(answer.text):
        yield {"choices": [_delta(piece)]}
    last = {"finish_reason": "stop", "stop_reason": answer.stop_reason, "token_ids": None}
    yield {"choices": [{"index": 0, "delta": {}, "logprobs": None, **last}]}


def _delta(piece: str) -> dict[str, Any]:
    return {
        "index": 0,
        "delta": {"content": piece},
        "logprobs": None,
        "finish_reason": None,
        "token_ids": None,
    }


def _text_chunks(answer: Answer) -> Iterator[dict[str, Any]]:
    words = pieces(answer.text) or [""]
    for position, piece in enumerate(words, start=1):
        last = position == len(words)
        yield {
            "choices": [
                {
                    "index": 0,
                    "text": piece,
                    "logprobs": None,
                    "finish_reason": "stop" if last else None,
                    "stop_reason": answer.stop_reason if last else None,
                    "prompt_token_ids": None,
                    "token_ids": None,
                }
            ]
        }


def _choice(answer: Answer, endpoint: Endpoint) -> dict[str, Any]:
    end = {"logprobs": None, "finish_reason": "stop", "stop_reason": answer.stop_reason, "token_ids": None}
    if endpoint is Endpoint.COMPLETIONS:
        rest = dict.fromkeys(("prompt_logprobs", "prompt_token_ids", "routed_experts"))
        return {"index": 0, "text": answer.text, **end, **rest}
    unused = dict.fromkeys(("refusal", "annotations", "audio", "function_call", "reasoning"))
    message = {"role": "assistant", "content": answer.text, **unused}
    return {"index": 0, "message": message, **end, "routed_experts": None}


def _usage(usage: Usage) -> dict[str, int]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "total_tokens": usage.total_tokens,
        "completion_tokens": usage.completion_tokens,
    }
