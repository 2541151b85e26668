"""Bytes from an engine to a client. Headers are sent only when the first body bytes are there, so that a
failure before them is still a clean HTTP error."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from secrets import token_hex
from typing import Any
from urllib.parse import quote

from deployments.gateway.http import JSON, Exchange
from deployments.gateway.upstream import ConnectionRefused, UpstreamPool, UpstreamResponse
from deployments.telemetry import RequestTracer
from serve_app.errors import NoReplica, UpstreamFailed
from serve_app.fleet import FleetTable, Member
from serve_app.openai import sse
from serve_app.openai.requests import ParsedRequest
from serve_app.openai.upstream_errors import normalise_error, stream_error
from serve_app.routing import RoutingPolicy

STREAM_ERROR = b'data: {"error"'


class Relay:
    """Routes a request to an engine and passes the answer on."""

    def __init__(
        self, fleet: FleetTable, policy: RoutingPolicy, upstream: UpstreamPool, tracer: RequestTracer | None
    ) -> None:
        self._fleet = fleet
        self._policy = policy
        self._upstream = upstream
        self._tracer = tracer

    async def generation(
        self,
        exchange: Exchange,
        request: ParsedRequest,
        body: bytes,
        *,
        hide_usage: bool,
        record_limit: int,
    ) -> list[bytes] | None:
        """Relay one generating request; returns the response's bytes if they are complete, good and not
        beyond ``record_limit``."""
        async with self._open(exchange, request.model, body) as response:
            if response.status != 200:
                await self._pass_error(exchange, response)
                return None
            if not response.is_stream:
                whole = await response.read()
                await exchange.respond(200, whole, response.content_type, _timing(exchange))
                return [whole] if len(whole) <= record_limit else None
            return await _stream(exchange, response, hide_usage, record_limit)

    async def verbatim(self, exchange: Exchange, model: str, body: bytes) -> None:
        """Relay any other request unchanged, whatever the engine answers."""
        async with self._open(exchange, model, body) as response:
            if response.status >= 400:
                await self._pass_error(exchange, response)
            elif response.is_stream:
                await _stream(exchange, response, hide_usage=False, record_limit=0)
            else:
                whole = await response.read()
                await exchange.respond(response.status, whole, response.content_type, _timing(exchange))

    @asynccontextmanager
    async def _open(self, exchange: Exchange, model: str, body: bytes) -> AsyncIterator[UpstreamResponse]:
        """The response of the best member that takes the request, its first bytes arrived.

        Only a refused connection leads to the next member here: nothing was sent, nothing is repeated.
        """
        with exchange.timeline.step("route"):
            members = self._policy(self._fleet.candidates(model, time.monotonic()))
        for member in members:
            started_ns = time.time_ns()
            self._fleet.acquire(member)
            try:
                async with self._send(exchange, member, body) as response:
                    exchange.timeline.add("upstream-ttft", started_ns)
                    exchange.response_headers["x-served-by"] = member.name
                    yield response
                    exchange.timeline.add("upstream", started_ns)
                    return
            except ConnectionRefused:
                self._fleet.mark_unreachable(member, time.monotonic())
            finally:
                self._fleet.release(member)
        raise NoReplica(f"No replica of {model!r} can take the request now.", code="no_replica")

    def _send(self, exchange: Exchange, member: Member, body: bytes) -> Any:
        target = quote(exchange.path) + (f"?{exchange.query.decode('latin-1')}" if exchange.query else "")
        headers = {
            "content-type": exchange.headers.get("content-type", JSON),
            # vLLM names its own request after this; two requests with one id must not meet there.
            "x-request-id": f"{exchange.request_id}-{token_hex(4)}",
        }
        if self._tracer is not None and exchange.span is not None:
            self._tracer.inject(exchange.span, headers)
        elif "traceparent" in exchange.headers:
            headers["traceparent"] = exchange.headers["traceparent"]
        return self._upstream.request(member, exchange.method, target, body, headers)

    async def _pass_error(self, exchange: Exchange, response: UpstreamResponse) -> None:
        """The engine's error, in OpenAI's shape whatever shape it came in."""
        status = 502 if response.status >= 500 else response.status
        body = normalise_error(status, await response.read())
        await exchange.respond(status, body, JSON, _timing(exchange))


class _Recorder:
    """Keeps a response's bytes for the cache, up to a limit."""

    def __init__(self, limit: int) -> None:
        self._room = limit
        self._chunks: list[bytes] | None = [] if limit else None

    def add(self, chunk: bytes) -> None:
        if self._chunks is None:
            return
        self._room -= len(chunk)
        if self._room < 0:
            self._chunks = None
        else:
            self._chunks.append(chunk)

    @property
    def chunks(self) -> list[bytes] | None:
        """Everything, or ``None`` if it was not wanted or too much."""
        return self._chunks


async def _stream(
    exchange: Exchange, response: UpstreamResponse, hide_usage: bool, record_limit: int
) -> list[bytes] | None:
    """Pass a stream on as it comes; returns what was received if it ended well."""
    if response.first.startswith(STREAM_ERROR):
        await _answer_with_error(exchange, response.first)
        return None
    recorder = _Recorder(record_limit)
    await exchange.start(200, response.content_type, {"cache-control": "no-cache", **_timing(exchange)})
    try:
        rest = await _pass_chunks(exchange, response, hide_usage, recorder)
    except UpstreamFailed as error:
        await exchange.fail(error)
        return None
    await exchange.write(rest, more=False)
    return recorder.chunks


async def _answer_with_error(exchange: Exchange, first_event: bytes) -> None:
    """A stream that begins with an error is no stream: vLLM checks some values only when it starts one."""
    status, body = stream_error(first_event)
    await exchange.respond(status, body, JSON, _timing(exchange))


async def _pass_chunks(
    exchange: Exchange, response: UpstreamResponse, hide_usage: bool, recorder: _Recorder
) -> bytes:
    """The loop that every token goes through. Returns what a filter held back at the end."""
    usage_filter = sse.UsageFilter() if hide_usage else None
    async for chunk in response.chunks():
        recorder.add(chunk)
        passed = chunk if usage_filter is None else usage_filter.feed(chunk)
        if passed:
            await exchange.write(passed)
    return b"" if usage_filter is None else usage_filter.rest()


def _timing(exchange: Exchange) -> dict[str, str]:
    return {"server-timing": exchange.timeline.server_timing()}
