"""A stream that survives the death of its engine: another member goes on from the tokens already sent."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from deployments.gateway.request.answer import Head
from deployments.gateway.request.call import Call, Purpose
from deployments.gateway.send.live_answer import Leg
from deployments.wire.upstream import ConnectionBroken
from serve_app.errors import PromptlyError, UpstreamFailed
from serve_app.openai.continuation import Ending, EngineRequest, ResumableStream
from serve_app.request.failover import Tried
from serve_app.traffic import Traffic

DETOKENIZE = "/detokenize"
"""vLLM's path: the text of a list of tokens."""

Begin = Callable[[Call, Tried], Coroutine[Any, Any, Leg]]
"""Asks members that have not been tried, and adds those that fail."""


class Detokenized(msgspec.Struct):
    prompt: str


class ContinuedAnswer:
    """One stream for the client, from as many members as it takes (at most ``gateway.max_attempts``).
    ``tried`` holds those that have failed already."""

    def __init__(self, call: Call, leg: Leg, tried: Tried, begin: Begin, traffic: Traffic) -> None:
        assert call.resumes is not None, "only a stream that can be continued is read in this way"
        self._call = call
        self._stream = ResumableStream(call.resumes, include_usage=call.message.include_usage)
        self._limits = leg.dispatch.member.report.token_limits
        self._leg: Leg | None = leg
        self._begin = begin
        self._traffic = traffic
        self._tried = tried
        self._lost: UpstreamFailed | None = None
        self._over = False
        self.head = leg.head

    async def begin(self) -> Head:
        return self.head

    async def read(self) -> bytes:
        """The next events; ``b""`` at the end. May be cancelled without losing any.

        Raises:
            UpstreamFailed: the stream was cut and cannot be continued; what the first member said of it.
        """
        while not self._over:
            passed = await (self._resume() if self._leg is None else self._read(self._leg))
            if passed:
                return passed
        return b""

    def close(self) -> None:
        if self._leg is not None:
            self._leg.close()

    async def _read(self, leg: Leg) -> bytes:
        """What the present member says; when it fails, it is given up."""
        try:
            chunk = await leg.read()
        except UpstreamFailed as error:
            self._over = self._stream.done  # everything was said: how the connection ends is no concern
            if not self._over:
                self._lose(leg, error, is_break=isinstance(error, ConnectionBroken))
            return b""
        if not chunk:
            self._over = self._stream.done
            if not self._over:
                ended = UpstreamFailed("The engine's stream ended too early.", code="upstream_failed")
                self._lose(leg, ended, is_break=True)
            return b""
        passed = self._stream.feed(chunk)
        if self._stream.failure is not None:
            failed = UpstreamFailed("The engine failed.", code="upstream_failed")
            self._lose(leg, failed, is_break=True)
        return passed

    def _lose(self, leg: Leg, error: UpstreamFailed, *, is_break: bool) -> None:
        if is_break:
            self._tried.broke(leg.broke(), begun=True)
        leg.close()
        self._leg = None
        self._lost = error
        self._tried.failed(leg.member)

    async def _resume(self) -> bytes:
        """Another member takes over; returns what is left to say if nothing is left to generate."""
        assert self._lost is not None, "only a lost answer is resumed"
        try:
            await self._settle()
            plan = self._stream.resume(self._limits)
            if isinstance(plan, EngineRequest):
                self._leg = await self._begin(self._continuation(plan), self._tried)
        except PromptlyError:
            raise self._lost from None
        if plan is None:
            raise self._lost
        self._traffic.continued += 1
        if isinstance(plan, Ending):
            self._over = True
            return plan.events
        return b""

    async def _settle(self) -> None:
        """The engine that is gone may have kept a character's bytes back: another one's tokenizer tells where
        the text that was sent ends."""
        while tokens := self._stream.unsettled:
            fields = {"model": self._call.model, "tokens": tokens}
            call = self._asking(DETOKENIZE, fields, Purpose.HELP)
            leg = await self._begin(call, self._tried)
            try:
                if leg.response.is_stream:
                    raise UpstreamFailed("The engine cannot detokenize.", code="upstream_failed")
                answer = b""
                while part := await leg.read():
                    answer += part
            finally:
                leg.close()
            try:
                self._stream.settle(msgspec.json.decode(answer, type=Detokenized).prompt)
            except msgspec.DecodeError:
                raise UpstreamFailed("The engine cannot detokenize.", code="upstream_failed") from None

    def _continuation(self, plan: EngineRequest) -> Call:
        return self._asking(plan.endpoint.value, plan.fields, self._call.purpose)

    def _asking(self, target: str, fields: dict[str, Any], purpose: Purpose) -> Call:
        """A request of the gateway's own, for members that give token ids. It is bounded like a stream: the
        first token's time-out applies."""
        body = msgspec.json.encode(fields)
        return msgspec.structs.replace(
            self._call,
            purpose=purpose,
            place=msgspec.structs.replace(self._call.place, needs_token_ids=True),
            message=self._call.message.to(target, fields, body, streams=True),
            resumes=None,
        )
