"""A streamed chat completion as it arrives: text, tool calls, tokens, and when they came."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import msgspec

from serve_app.evaluation.answer import Answer
from serve_app.openai import sse

REASON_CHARACTERS = 300
REASONING = ("reasoning_content", "reasoning")
"""Fields of a delta that hold what a model thinks: tokens, but not text of the answer."""


class AnswerStream:
    """Feed it pieces of a body with the seconds since the request was sent."""

    def __init__(self) -> None:
        self._rest = b""
        self._texts: list[str] = []
        self._calls: dict[int, dict[str, Any]] = {}
        self._times: list[float] = []
        self._finish_reason: str | None = None
        self._usage: Mapping[str, Any] = {}
        self._error: str | None = None
        self._is_done = False

    def feed(self, piece: bytes, now_s: float) -> None:
        *events, self._rest = sse.EVENT_END.split(self._rest + piece)
        for event in events:
            for data in sse.iter_data(event):
                self._take(data, now_s)

    def answer(self, ended_s: float) -> Answer:
        """What came until ``ended_s``."""
        error = self._error
        if error is None and not self._is_done:
            error = "the stream broke off"
        first = self._times[0] if self._times else None
        return Answer(
            text="".join(self._texts),
            tool_calls=tuple(self._calls[index] for index in sorted(self._calls)),
            finish_reason=self._finish_reason,
            error=error,
            prompt_tokens=_count(self._usage, "prompt_tokens", 0),
            output_tokens=_count(self._usage, "completion_tokens", len(self._times)),
            ttft_s=first,
            itl_s=tuple(later - sooner for sooner, later in pairwise(self._times)),
            e2e_s=ended_s,
        )

    def _take(self, data: bytes, now_s: float) -> None:
        if data == sse.DONE:
            self._is_done = True
            return
        try:
            event = msgspec.json.decode(data)
            if "error" in event:
                self._error = said(event)
                return
            self._usage = event.get("usage") or self._usage
            for choice in event.get("choices") or ():
                self._take_choice(choice, now_s)
        except (ValueError, TypeError, AttributeError, KeyError, msgspec.DecodeError):
            self._error = "an event of the stream is no chat completion"

    def _take_choice(self, choice: Mapping[str, Any], now_s: float) -> None:
        delta = choice.get("delta") or {}
        self._finish_reason = choice.get("finish_reason") or self._finish_reason
        text = delta.get("content") or ""
        self._texts.append(text)
        calls = delta.get("tool_calls") or ()
        for call in calls:
            self._take_call(call)
        if text or calls or any(delta.get(name) for name in REASONING):
            self._times.append(now_s)

    def _take_call(self, call: Mapping[str, Any]) -> None:
        known = self._calls.setdefault(
            call.get("index", 0), {"type": "function", "function": {"name": "", "arguments": ""}}
        )
        if call.get("id"):
            known["id"] = call["id"]
        function = call.get("function") or {}
        for name in ("name", "arguments"):
            known["function"][name] += function.get(name) or ""


def whole_answer(body: bytes, ended_s: float) -> Answer:
    """An answer that was not streamed: it has no time to the first token."""
    try:
        document = msgspec.json.decode(body)
        choice = document["choices"][0]
        message, usage = choice["message"], document.get("usage") or {}
        return Answer(
            text=message.get("content") or "",
            tool_calls=tuple(message.get("tool_calls") or ()),
            finish_reason=choice.get("finish_reason"),
            prompt_tokens=_count(usage, "prompt_tokens", 0),
            output_tokens=_count(usage, "completion_tokens", 0),
            e2e_s=ended_s,
        )
    except (ValueError, TypeError, AttributeError, KeyError, IndexError):
        return Answer(error="the answer is no chat completion", e2e_s=ended_s)


def said(document: Any) -> str:
    """The message of an error in OpenAI's form, cut."""
    error = document.get("error") if isinstance(document, dict) else None
    message = (error.get("message") if isinstance(error, dict) else error) or document
    return " ".join(str(message).split())[:REASON_CHARACTERS]


def _count(usage: Mapping[str, Any], name: str, otherwise: int) -> int:
    value = usage.get(name)
    return value if isinstance(value, int) and value >= 0 else otherwise
