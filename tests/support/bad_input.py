"""Wrong requests and what each must be answered with; used against scripted and real engines."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

CHAT = "/v1/chat/completions"
USER = {"role": "user", "content": "hi"}


@dataclass(frozen=True)
class BadRequestCase:
    """``fields`` is merged into a valid chat body; ``raw`` replaces the body."""

    name: str
    status: int
    param: str | None
    fields: dict[str, Any] = field(default_factory=dict)
    raw: bytes | None = None
    without: str | None = None
    method: str = "POST"
    path: str = CHAT
    headers: dict[str, str] = field(default_factory=dict)

    def body(self, model: str) -> bytes:
        if self.raw is not None:
            return self.raw
        body = {"model": model, "messages": [USER], **self.fields}
        return json.dumps({name: value for name, value in body.items() if name != self.without}).encode()


def case(name: str, status: int, param: str | None, **fields: Any) -> BadRequestCase:
    return BadRequestCase(name, status, param, **fields)


BAD_REQUESTS = (
    case("not JSON", 400, None, raw=b"{bad"),
    case("no object", 400, None, raw=b"[1]"),
    case("empty body", 400, None, raw=b""),
    case("not UTF-8", 400, None, raw=b'{"model": "\xff"}'),
    case("nested too deeply", 400, None, raw=b"[" * 50_000),
    case("missing model", 400, "model", without="model"),
    case("missing messages", 400, "messages", without="messages"),
    case("empty messages", 400, "messages", fields={"messages": []}),
    case("messages of the wrong type", 400, "messages", fields={"messages": "hi"}),
    case("a message without a role", 400, "messages[0].role", fields={"messages": [{"content": "x"}]}),
    case(
        "content of the wrong type",
        400,
        "messages[0].content",
        fields={"messages": [{"role": "user", "content": 5}]},
    ),
    case(
        "null as a user's content",
        400,
        "messages[1].content",
        fields={"messages": [{"role": "assistant", "content": None}, {"role": "user", "content": None}]},
    ),
    case("unknown model", 404, "model", fields={"model": "nope"}),
    case("negative max_tokens", 400, "max_tokens", fields={"max_tokens": -1}),
    case("temperature of the wrong type", 400, "temperature", fields={"temperature": "hot"}),
    case("stream of the wrong type", 400, "stream", fields={"stream": "maybe"}),
    case("n of zero", 400, "n", fields={"n": 0}),
    case("2 MB body", 413, None, path="/v1/completions", raw=b'{"x": "' + b"x" * 2_000_000 + b'"}'),
    case("unknown path", 404, None, path="/v2/chat"),
    case("unknown path under v1", 404, None, path="/v1/nothing"),
    case("wrong method", 405, None, method="PUT"),
    case("wrong method on models", 405, None, method="DELETE", path="/v1/models"),
    case("missing prompt", 400, "prompt", path="/v1/completions"),
    case("nonsense deadline", 400, "x-request-timeout-ms", headers={"x-request-timeout-ms": "soon"}),
    case("nonsense threshold", 400, "x-cache-threshold", headers={"x-cache-threshold": "high"}),
    case("nonsense ttl", 400, "x-cache-ttl", headers={"x-cache-ttl": "-1"}),
    case("nonsense tags", 400, "x-cache-tags", headers={"x-cache-tags": "a b, c"}),
    case("nonsense max-age", 400, "cache-control", headers={"cache-control": "max-age=old"}),
)


async def raw_request(url: str, header_line: bytes, body: bytes) -> tuple[int, bytes]:
    """A POST with header bytes that HTTP clients refuse to send. Returns status and body."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        head = f"POST {parts.path} HTTP/1.1\r\nhost: {parts.netloc}\r\nconnection: close\r\n".encode()
        head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n".encode()
        writer.write(head + header_line + b"\r\n" + body)
        response = await asyncio.wait_for(reader.read(), 10)
    finally:
        writer.close()
        await writer.wait_closed()
    head_bytes, _, answer = response.partition(b"\r\n\r\n")
    return int(head_bytes.split()[1]), answer
