"""Feedback and captures as `/admin` shows them."""

from __future__ import annotations

from typing import Any

import msgspec

from serve_app.feedback.captured import Capture, Content
from serve_app.feedback.values import Feedback, Judged

CONTENT = msgspec.msgpack.Decoder(Content)


def shown(feedback: Feedback) -> dict[str, Any]:
    said, request = feedback.said, feedback.request
    return {
        "number": feedback.number,
        "tenant": feedback.tenant,
        "request_id": feedback.request_id,
        "author": feedback.author,
        "at": round(feedback.at, 3),
        "score": said.score,
        "label": said.label,
        "text": said.text,
        "correction": said.correction,
        "messages": said.messages,
        "request": _request(request),
    }


def shown_capture(capture: Capture, *, with_content: bool) -> dict[str, Any]:
    known = {
        "number": capture.number,
        "tenant": capture.tenant,
        "request_id": capture.request_id,
        "at": round(capture.at, 6),
        "endpoint": capture.endpoint,
        "model": capture.model,
        "size": len(capture.content),
        "request": None if capture.request is None else _request(capture.request),
    }
    if not with_content:
        return known
    content = CONTENT.decode(capture.content)
    answer = {
        "text": content.text,
        "tool_calls": content.tool_calls,
        "finish_reason": content.finish_reason,
        "complete": content.complete,
    }
    return known | {"asked": content.request, "answer": answer}


def _request(request: Judged) -> dict[str, Any]:
    return {
        "at": round(request.at, 3),
        "model": request.model,
        "cache": request.cache,
        "entry": request.entry,
        "finish_reason": request.finish_reason,
        "prompt_tokens": request.prompt_tokens,
        "output_tokens": request.output_tokens,
        "ttft_ms": None if request.ttft_ms is None else round(request.ttft_ms, 3),
        "total_ms": round(request.total_ms, 3),
        "experiment": request.experiment,
    }
