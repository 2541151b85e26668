"""Bytes from an answer to a client. Headers are sent only when the first body bytes are there, so that a
failure before them is still a clean HTTP error."""

from __future__ import annotations

from deployments.gateway.request.answer import Answer, OpenAnswer
from deployments.gateway.request.exchange import Exchange
from serve_app.dialects import Ending, Writer
from serve_app.errors import PromptlyError, UpstreamFailed
from serve_app.openai import sse


async def relay(
    exchange: Exchange,
    answer: Answer,
    *,
    hide_usage: bool = False,
    writer: Writer | None = None,
    ending: Ending | None = None,
) -> PromptlyError | None:
    """Pass an answer on as it comes, and close it; through ``writer`` if the client speaks a dialect.
    ``ending`` is awaited before the last bytes.

    Returns why a stream was cut, after telling the client so. Raises what keeps an answer from beginning.
    """
    try:
        opened = await answer.begin()
        head = opened.head
        exchange.response_headers["x-served-by"] = head.served_by
        if head.is_stream:
            change = writer or (sse.UsageFilter() if hide_usage else None)
            return await _stream(exchange, opened, change, ends_itself=writer is not None, ending=ending)
        # Read to the end first: until then a failure can still be an HTTP error.
        whole = await read_all(opened)
        if writer is not None:
            whole = await _written(writer, whole, head.content_type, ending)
        await exchange.respond(head.status, whole, head.content_type, exchange.server_timing())
        return None
    finally:
        answer.close()


async def _stream(
    exchange: Exchange,
    answer: OpenAnswer,
    change: sse.UsageFilter | Writer | None,
    *,
    ends_itself: bool,
    ending: Ending | None,
) -> PromptlyError | None:
    """``ends_itself``: ``change`` writes the events that end the stream."""
    headers = {"cache-control": "no-cache", **exchange.server_timing()}
    await exchange.start(answer.head.status, answer.head.content_type, headers)
    try:
        while chunk := await answer.read():  # every token passes through this loop
            passed = chunk if change is None else change.feed(chunk)
            if passed:
                await exchange.write(passed)
        if exchange.is_cut and not ends_itself:
            raise UpstreamFailed("The engine's stream ended too early.", code="upstream_failed")
        last = b"" if change is None else change.rest()
        if ending is not None:
            last = await ending(last)
    except PromptlyError as error:
        await exchange.fail(error)
        return error
    await exchange.write(last, more=False)
    return None


async def _written(writer: Writer, body: bytes, content_type: str, ending: Ending | None) -> bytes:
    """A whole answer in the client's dialect; a stored one may be a stream of which all bytes are known."""
    if content_type.startswith("text/event-stream"):
        first, last = writer.feed(body), writer.rest()
    else:
        first, last = b"", writer.whole(body)
    return first + (last if ending is None else await ending(last))


async def read_all(answer: OpenAnswer) -> bytes:
    """The rest of an answer. Raises what ``OpenAnswer.read`` raises."""
    parts: list[bytes] = []
    while part := await answer.read():
        parts.append(part)
    return b"".join(parts)
