"""Bytes from an answer to a client. Headers are sent only when the first body bytes are there, so that a
failure before them is still a clean HTTP error."""

from __future__ import annotations

from deployments.gateway.request.answer import Answer, OpenAnswer
from deployments.gateway.request.exchange import Exchange
from serve_app.errors import PromptlyError, UpstreamFailed
from serve_app.openai import sse


async def relay(exchange: Exchange, answer: Answer, *, hide_usage: bool = False) -> PromptlyError | None:
    """Pass an answer on as it comes, and close it. Returns why a stream was cut, after telling the client so.
    Raises what keeps an answer from beginning."""
    try:
        opened = await answer.begin()
        head = opened.head
        exchange.response_headers["x-served-by"] = head.served_by
        if head.is_stream:
            return await _stream(exchange, opened, hide_usage)
        # Read to the end first: until then a failure can still be an HTTP error.
        whole = await _read_all(opened)
        await exchange.respond(head.status, whole, head.content_type, exchange.server_timing())
        return None
    finally:
        answer.close()


async def _stream(exchange: Exchange, answer: OpenAnswer, hide_usage: bool) -> PromptlyError | None:
    headers = {"cache-control": "no-cache", **exchange.server_timing()}
    await exchange.start(answer.head.status, answer.head.content_type, headers)
    usage_filter = sse.UsageFilter() if hide_usage else None
    try:
        while chunk := await answer.read():  # every token passes through this loop
            passed = chunk if usage_filter is None else usage_filter.feed(chunk)
            if passed:
                await exchange.write(passed)
        if exchange.is_cut:
            raise UpstreamFailed("The engine's stream ended too early.", code="upstream_failed")
    except PromptlyError as error:
        await exchange.fail(error)
        return error
    await exchange.write(b"" if usage_filter is None else usage_filter.rest(), more=False)
    return None


async def _read_all(answer: OpenAnswer) -> bytes:
    parts: list[bytes] = []
    while part := await answer.read():
        parts.append(part)
    return b"".join(parts)
