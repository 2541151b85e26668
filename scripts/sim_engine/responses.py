"""Answers and errors in vLLM's JSON and events."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from sim_engine.requests import Generation
from sim_engine.text import JSON_WORDS, detokenise


def to_json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def error_body(status: int, message: str) -> bytes:
    kind = HTTPStatus(status).phrase.replace(" ", "") + "Error"
    return to_json({"error": {"message": message, "type": kind, "param": None, "code": status}})


def event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


TEXT_MARK, IDS_MARK = "\0text", "\0ids"  # placeholders for a chunk's text and ids


class Shape:
    """The bytes of one answer. Chunks differ in text and ids only, so one template serves for all."""

    def __init__(self, request: Generation, model: str) -> None:
        self._request = request
        kind = "chat.completion.chunk" if request.chat else "text_completion"
        self._head = {"id": request.request_id, "object": kind, "created": int(time.time()), "model": model}
        self._template = self._cut(self._choice(None, None))

    def role(self) -> bytes:
        """The event before the first token, which only chats have."""
        if not self._request.chat:
            return b""
        delta = {"role": "assistant", "content": ""}
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
        ids = {"prompt_token_ids": self._prompt_ids(), "prompt_text": None}
        return event(to_json(self._head | {"choices": [choice]} | ids))

    def chunk(self, tokens: Sequence[int], position: int, finish_reason: str | None) -> bytes:
        """The event of one token, or of several; the first and the last have more fields."""
        before, between, after = self._template
        if position == 0 or finish_reason is not None:
            prompt_ids = self._prompt_ids() if position == 0 else None
            before, between, after = self._cut(self._choice(finish_reason, prompt_ids))
        if len(tokens) == 1:  # each token of most engines passes here
            text, ids = JSON_WORDS[tokens[0]], b"[%d]" % tokens[0]
        else:
            text, ids = to_json(detokenise(tokens)), to_json(list(tokens))
        return b"".join((before, text, between, ids if self._request.token_ids else b"null", after))

    def end(
        self, completion_tokens: int, cached: int | None = None, metrics: dict[str, float] | None = None
    ) -> bytes:
        """The events after the last token. ``completion_tokens``: of the first choice. ``cached``: how many
        prompt tokens were; None: not shown. ``metrics``: vLLM's, if shown."""
        if not self._request.usage:
            return event(b"[DONE]")
        usage = self._usage(completion_tokens)
        if cached is not None:
            usage["prompt_tokens_details"] = {"cached_tokens": cached}
        about = {"choices": [], "usage": usage, "system_fingerprint": "sim"}
        if metrics is not None:
            about["metrics"] = metrics
        return event(to_json(self._head | about)) + event(b"[DONE]")

    def whole(
        self,
        ids: list[int],
        finish_reason: str,
        cached: int | None = None,
        metrics: dict[str, float] | None = None,
    ) -> bytes:
        """The body of an answer that is not streamed."""
        shown = ids if self._request.token_ids else None
        reason = self._reason(finish_reason)
        end = {"logprobs": None, "finish_reason": reason, "stop_reason": None, "token_ids": shown}
        unset = {**dict.fromkeys(("kv_transfer_params", "ec_transfer_params")), "metrics": metrics}
        prompt: dict[str, Any] = {"prompt_logprobs": None, "prompt_token_ids": self._prompt_ids()}
        if self._request.chat:
            choice: dict[str, Any] = {"index": 0, "message": self._message(ids), **end}
            unset = {**prompt, "prompt_text": None, **unset}
        else:
            choice = {"index": 0, "text": detokenise(ids), **end, **prompt}
        details: dict[str, Any] = dict.fromkeys(("prompt_tokens_details", "completion_tokens_details"))
        if cached is not None:
            details["prompt_tokens_details"] = {"cached_tokens": cached}
        about = {"service_tier": None, "system_fingerprint": "sim", "usage": self._usage(len(ids)) | details}
        head = self._head | {"object": "chat.completion" if self._request.chat else "text_completion"}
        return to_json(head | {"choices": [choice | {"routed_experts": None}]} | about | unset)

    def _message(self, ids: list[int]) -> dict[str, Any]:
        empty = dict.fromkeys(("refusal", "annotations", "audio", "function_call", "reasoning"))
        return {"role": "assistant", "content": detokenise(ids), **empty}

    def _reason(self, finish_reason: str | None) -> str | None:
        """What the answer says about its end."""
        return finish_reason

    def _choice(self, finish_reason: str | None, prompt_ids: list[int] | None) -> dict[str, Any]:
        end: dict[str, Any] = {"logprobs": None, "finish_reason": finish_reason}
        if not self._request.chat:
            rest = {"stop_reason": None, "prompt_token_ids": prompt_ids, "token_ids": IDS_MARK}
            return {"index": 0, "text": TEXT_MARK, **end, **rest}
        if finish_reason is not None:
            end["stop_reason"] = None
        return {"index": 0, "delta": {"content": TEXT_MARK}, **end, "token_ids": IDS_MARK}

    def _cut(self, choice: dict[str, Any]) -> tuple[bytes, bytes, bytes]:
        """The bytes of a chunk before, between and after text and ids."""
        extra = {}
        if choice["finish_reason"] is not None and not self._request.usage:
            extra = {"system_fingerprint": "sim"}
        chunk = event(to_json(self._head | {"choices": [choice]} | extra))
        before, rest = chunk.split(to_json(TEXT_MARK))
        between, after = rest.split(to_json(IDS_MARK))
        return before, between, after

    def _prompt_ids(self) -> list[int] | None:
        return self._request.prompt if self._request.token_ids else None

    def _usage(self, completion_tokens: int) -> dict[str, Any]:
        """The other choices would have as many tokens as the first."""
        prompt, output = len(self._request.prompt), completion_tokens * self._request.slots
        return {"prompt_tokens": prompt, "total_tokens": prompt + output, "completion_tokens": output}
