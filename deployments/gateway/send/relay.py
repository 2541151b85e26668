"""Bytes from an answer to a client. Headers are sent only when the first body bytes are there, so that a
failure before them is still a clean HTTP error."""

from __future__ import annotations

from collections.abc import Callable

from deployments.gateway.request.answer import Answer, Head, OpenAnswer, live
from deployments.gateway.request.exchange import Exchange, timing_comment
from deployments.gateway.send.flow import Flow
from serve_app.dialects import Ending, Writer
from serve_app.errors import PromptlyError, UpstreamFailed
from serve_app.openai.usage import (
    Measured,
    RelayedUsage,
    UsageFilter,
    measured_events,
    measured_relayed,
    measured_whole,
    without_metrics,
)
from serve_app.request.gaps import MOST_STAMPS, Gaps

EVENTS = "text/event-stream"


async def relay(
    exchange: Exchange,
    answer: Answer,
    *,
    usage: UsageFilter | None = None,
    writer: Writer | None = None,
    ending: Ending | None = None,
) -> PromptlyError | None:
    """Pass an answer on as it comes, and close it; through ``writer`` if the client speaks a dialect.
    ``usage`` reads what a generated answer says of itself; without it only the tokens are read. ``ending`` is
    awaited before the last bytes.

    Returns why a stream was cut, after telling the client so. Raises what keeps an answer from beginning.
    """
    try:
        opened = await answer.begin()
        head = opened.head
        exchange.response_headers["x-served-by"] = head.served_by
        if head.is_stream:
            return await _stream(exchange, opened, usage, writer, ending)
        # Read to the end first: until then a failure can still be an HTTP error.
        whole = await read_all(opened)
        opened.close()  # the member is done, however slowly the client reads
        if usage is not None and head.is_measured:
            whole = _measured(exchange, head, whole, shows_metrics=usage.shows_metrics)
        elif usage is None:
            exchange.facts.measured = measured_relayed(whole)
        if writer is not None:
            whole = await _written(writer, whole, head.content_type, ending)
        if head.content_type.startswith(EVENTS):
            whole += timing_comment(exchange)
        await exchange.respond(head.status, whole, head.content_type, exchange.server_timing(ended=True))
        return None
    finally:
        answer.close()


async def _stream(
    exchange: Exchange,
    answer: OpenAnswer,
    usage: UsageFilter | None,
    writer: Writer | None,
    ending: Ending | None,
) -> PromptlyError | None:
    relayed = RelayedUsage()
    feed = relayed.feed if usage is None else usage.feed
    headers = {"cache-control": "no-cache", **exchange.server_timing()}
    await exchange.start(answer.head.status, answer.head.content_type, headers)
    if usage is not None and not answer.head.asked_usage:
        usage.hides_usage = False  # what a server sends of itself stays
    exchange.facts.gaps = gaps = Gaps()
    translate = feed if writer is None else _translation(feed, writer.feed)
    translate = _timed(translate, gaps, exchange.timeline.clock)
    flowing = live(answer) if exchange.writes_now else None
    flow = None if flowing is None else Flow(exchange, flowing, translate)
    try:
        while chunk := await answer.read():
            passed = translate(chunk)
            if passed:
                await exchange.write(passed)
            if flow is not None and (left := await flow.run()):
                await exchange.write(left)
        answer.close()
        if exchange.is_cut and writer is None:  # a writer writes the events that end the stream
            raise UpstreamFailed("The engine's stream ended too early.", code="upstream_failed")
        last = b"" if usage is None else usage.rest()
        if writer is not None:
            last = writer.feed(last) + writer.rest()
        if ending is not None:
            last = await ending(last)
    except PromptlyError as error:
        await exchange.fail(error)
        return error
    finally:
        measured = relayed.measured() if usage is None else usage.measured()
        _take(exchange, measured, streamed=True)
    await exchange.write(last + timing_comment(exchange), more=False)
    return None


def _translation(first: Callable[[bytes], bytes], then: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    return lambda chunk: then(first(chunk))


def _timed(
    translate: Callable[[bytes], bytes], gaps: Gaps, clock: Callable[[], int]
) -> Callable[[bytes], bytes]:
    """Every token passes here, so all else is done later."""
    stamps = gaps.stamps

    def timed(chunk: bytes) -> bytes:
        passed = translate(chunk)
        if passed:
            stamps.append(clock())
            if len(stamps) > MOST_STAMPS:
                gaps.count()
        return passed

    return timed


def _measured(exchange: Exchange, head: Head, whole: bytes, *, shows_metrics: bool) -> bytes:
    """A whole answer without what the engine measured, which is kept."""
    if head.content_type.startswith(EVENTS):
        _take(exchange, measured_events(whole), streamed=False)
        return whole
    _take(exchange, measured_whole(whole), streamed=False)
    return whole if shows_metrics else without_metrics(whole, null=True)


def _take(exchange: Exchange, measured: Measured, *, streamed: bool) -> None:
    exchange.facts.measured = measured
    if measured.engine is not None:
        exchange.timeline.add_engine(measured.engine, streamed=streamed)


async def _written(writer: Writer, body: bytes, content_type: str, ending: Ending | None) -> bytes:
    """A whole answer in the client's dialect; a stored one may be a stream of which all bytes are known."""
    if content_type.startswith(EVENTS):
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
