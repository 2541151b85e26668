"""Bytes from an answer to a client. Headers are sent only when the first body bytes are there, so that a
failure before them is still a clean HTTP error."""

from __future__ import annotations

from typing import Protocol

from deployments.gateway.request.exchange import Exchange
from deployments.gateway.send.live_answer import LiveAnswer
from serve_app.errors import PromptlyError, UpstreamFailed
from serve_app.openai import sse


class Readable(Protocol):
    """What bytes are read from: an answer itself, or one client's place in it."""

    async def read(self) -> bytes: ...


async def relay(
    exchange: Exchange, answer: LiveAnswer, source: Readable, *, hide_usage: bool = False
) -> PromptlyError | None:
    """Pass an answer on as it comes. Returns why a stream was cut, after telling the client so."""
    exchange.response_headers["x-served-by"] = answer.served_by
    if not answer.is_stream:
        # Read to the end first: until then a failure can still be an HTTP error.
        whole = await _read_all(source)
        await exchange.respond(answer.status, whole, answer.content_type, exchange.server_timing())
        return None
    headers = {"cache-control": "no-cache", **exchange.server_timing()}
    await exchange.start(answer.status, answer.content_type, headers)
    try:
        rest = await _pass_chunks(exchange, source, hide_usage)
        if exchange.is_cut:
            raise UpstreamFailed("The engine's stream ended too early.", code="upstream_failed")
    except PromptlyError as error:
        await exchange.fail(error)
        return error
    await exchange.write(rest, more=False)
    return None


async def _pass_chunks(exchange: Exchange, source: Readable, hide_usage: bool) -> bytes:
    """The loop that every token goes through. Returns what a filter held back at the end."""
    usage_filter = sse.UsageFilter() if hide_usage else None
    while chunk := await source.read():
        passed = chunk if usage_filter is None else usage_filter.feed(chunk)
        if passed:
            await exchange.write(passed)
    return b"" if usage_filter is None else usage_filter.rest()


async def _read_all(source: Readable) -> bytes:
    parts: list[bytes] = []
    while part := await source.read():
        parts.append(part)
    return b"".join(parts)
