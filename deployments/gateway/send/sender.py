"""One request to one member, until the first bytes of its answer, or its error."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from deployments.gateway.placement.queue import Admission
from deployments.gateway.request.call import Call, Message, Purpose
from deployments.wire.upstream import UpstreamPool, UpstreamResponse
from serve_app.errors import EngineError, PromptlyError, UpstreamFailed, UpstreamRefused, UpstreamTimeout
from serve_app.fleet import EngineReport
from serve_app.hedging import Hedge
from serve_app.openai.upstream_errors import begins_with_failure, normalise_error, stream_error
from serve_app.settings import LimitSettings

INTERNAL_ERROR = 500
NOT_FOR_US = (401, 403)


@dataclass(frozen=True, slots=True)
class Destination:
    """What a name of a model leads to: ``own`` is the name that engines know. ``by_priority``: managed
    engines schedule by priority; other engines reject one, and so may servers that are not managed."""

    own: str
    admission: Admission
    hedge: Hedge | None
    by_priority: bool


class Sender:
    """Keeps no state of a request."""

    def __init__(self, upstream: UpstreamPool, limits: LimitSettings) -> None:
        self._upstream = upstream
        self._first_token_timeout_s = limits.first_token_timeout_s
        self.stall_s = limits.between_tokens_timeout_s
        """How long the next bytes of an answer that has begun may take."""

    async def send(
        self, call: Call, to: Destination, report: EngineReport, *, fresh: bool
    ) -> UpstreamResponse:
        """The member's response, with its first bytes; all of them unless it is a stream. ``fresh``: over a
        new connection.

        Clients of a translated API know neither the model's context nor what its chat template takes: where
        an engine refuses that, it is asked again in another form. Each form changes something, and none is
        changed back, so this ends.

        Raises:
            UpstreamRefused: the engine refuses the request itself.
            UpstreamFailed, UpstreamTimeout: the member failed.
        """
        message = call.message
        if message.exceeds(report.token_limits.context):
            message = message.unbounded() or message
        while True:
            try:
                return await self._send(call, message, to, report, fresh=fresh)
            except UpstreamRefused as refused:
                other = message.otherwise(refused.details)
                if other is None:
                    raise
                message = other

    async def _send(
        self, call: Call, message: Message, to: Destination, report: EngineReport, *, fresh: bool
    ) -> UpstreamResponse:
        by_priority = to.by_priority and not report.is_static
        token_ids = call.resumption(report) is not None
        # A whole answer begins when it is done: only the request's own deadline bounds it.
        limit_s = self._first_token_timeout_s if message.streams else None
        try:
            async with asyncio.timeout(limit_s):
                response = await self._upstream.open(
                    report,
                    message.method,
                    message.target_for(report),
                    message.body_for(report, to.own, by_priority=by_priority, token_ids=token_ids),
                    message.headers_for(priority=call.slot.priority if by_priority else None),
                    fresh=fresh,
                )
                if response.status >= 400 or begins_with_failure(response.first):
                    raise await _refusal(response)
                if call.purpose is Purpose.RELAY:
                    return response
                if not response.first:
                    response.close()
                    raise UpstreamFailed("The engine's answer is empty.", code="upstream_failed")
                if not response.is_stream:
                    await response.load()  # until its bytes are sent on, another member can be asked
                return response
        except TimeoutError:
            raise UpstreamTimeout(self._first_token_timeout_s) from None


async def _refusal(response: UpstreamResponse) -> PromptlyError:
    """The engine's error in OpenAI's format, whatever format it came in."""
    try:
        if response.status < 400:
            # A stream that begins with an error: vLLM checks some values only when it starts one.
            status, content = stream_error(response.first, response.redactor)
            engine_status = INTERNAL_ERROR
        else:
            status = engine_status = response.status
            content = normalise_error(min(status, 502), await response.read(), response.redactor)
    finally:
        response.close()
    if status in NOT_FOR_US:  # the member's key is the gateway's, not the client's
        return UpstreamFailed(f"The engine refused the gateway ({status}).", code="upstream_failed")
    if status >= 500:
        return EngineError(content, engine_status)
    retry = response.headers.get("retry-after")
    return UpstreamRefused(status, content, {} if retry is None else {"retry-after": retry})
