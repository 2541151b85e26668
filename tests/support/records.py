"""Records of finished requests, for what looks at them."""

from __future__ import annotations

from typing import Any

from serve_app.openai.usage import TokenCounts
from serve_app.request.record import RequestRecord

ANSWERED: dict[str, Any] = {
    "request_id": "r",
    "trace_id": None,
    "start_unix_ns": 0,
    "method": "POST",
    "route": "/v1/chat/completions",
    "endpoint": "chat",
    "tenant": "default",
    "model": "m",
    "member": "e0",
    "session": None,
    "cache": "miss",
    "similarity": None,
    "score": None,
    "status": 200,
    "error": None,
    "client_gone": False,
    "finish_reason": "stop",
    "streamed": True,
    "tokens": TokenCounts(),
    "ttft_ms": 20.0,
    "total_ms": 100.0,
    "upstream_ms": 95.0,
    "overhead_ms": 5.0,
    "itl_ms": 2.0,
    "steps": (),
}


def a_record(prompt: int = 0, output: int = 0, **changed: Any) -> RequestRecord:
    """A streamed chat that an engine answered, but for what ``changed`` names."""
    tokens = TokenCounts(prompt=prompt or None, output=output or None)
    return RequestRecord(**{**ANSWERED, "tokens": tokens, **changed})
