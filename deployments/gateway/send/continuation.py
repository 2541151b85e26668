"""A stream that survives the death of its engine: another member continues from the tokens already sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from deployments.gateway.request.answer import Continuable, Live
from deployments.gateway.request.call import Call, Purpose, Resumption
from deployments.gateway.send.attempt import Attempt
from deployments.gateway.send.attempts import Attempts
from deployments.wire.upstream import ConnectionBroken, UpstreamResponse
from serve_app.errors import BudgetEnded, PromptlyError, UpstreamFailed
from serve_app.openai.continuation import (
    Ending,
    EngineRequest,
    ResumableChat,
    ResumableStream,
    SameChat,
)
from serve_app.traffic import Traffic

DETOKENIZE = "/detokenize"
"""vLLM's path: the text of a list of tokens."""


class Detokenized(msgspec.Struct):
    prompt: str


class ContinuedAnswer(Live, Continuable):
    """One stream for the client, from as many members as it takes (at most ``gateway.max_attempts``).

    It is long because its bytes are had in two ways, with and without waiting, and both may lose the member.
    """

    def __init__(self, call: Call, attempt: Attempt, attempts: Attempts, traffic: Traffic) -> None:
        assert call.resumes is not None, "only a stream that can be continued is read in this way"
        self._call = call
        with_usage = call.message.include_usage or call.message.measures  # a member that can go on is vLLM
        kind = ResumableStream if attempt.resumption is Resumption.TEXT else ResumableChat
        self._stream: ResumableStream | ResumableChat = kind(call.resumes.request, include_usage=with_usage)
        self._limits = attempt.dispatch.member.report.token_limits
        self._attempt: Attempt | None = attempt
        self._attempts = attempts
        self._traffic = traffic
        self._lost: UpstreamFailed | None = None
        self._over = False
        self._is_told = call.resumes.as_chat and attempt.dispatch.member.report.resumes_chats
        self._listened: UpstreamResponse | None = None
        self.head = attempt.head

    @property
    def beginning(self) -> Sequence[bytes] | None:
        return self._stream.beginning if self._is_told else None

    async def read(self) -> bytes:
        """The next events; ``b""`` at the end. May be cancelled without losing any.

        Raises:
            BudgetEnded: who asks may not have more of it.
            UpstreamFailed: the stream was cut and cannot be continued; the error of the member that cut it.
        """
        while not self._over:
            attempt = self._attempt
            if attempt is None:
                passed = await self._resume()
            else:
                try:
                    chunk = await attempt.response.read_some()
                except BudgetEnded:
                    raise
                except UpstreamFailed as error:
                    self._ended(attempt, error, is_break=isinstance(error, ConnectionBroken))
                    continue
                if not chunk:
                    early = UpstreamFailed("The engine's stream ended too early.", code="upstream_failed")
                    self._ended(attempt, early, is_break=True)
                    continue
                passed = self._stream.feed(chunk)
                if self._stream.failure is not None:
                    self._failed(attempt)
            if passed:
                return passed
        return b""

    def read_now(self) -> bytes | None:
        attempt = self._attempt
        if attempt is None or self._over:
            return None
        chunk = attempt.response.read_now()
        if not chunk:
            return chunk
        passed = self._stream.feed(chunk)
        if self._stream.failure is not None:
            self._failed(attempt)
        return passed if passed or self._attempt is not None else None

    def listen(self, arrived: Callable[[], None]) -> bool:
        if self._attempt is None or self._over or not self._attempt.response.listen(arrived):
            return False
        self._listened = self._attempt.response
        return True

    def unlisten(self) -> None:
        if self._listened is not None:
            self._listened.unlisten()
            self._listened = None

    def close(self) -> None:
        if self._attempt is not None:
            self._attempt.close()

    def _failed(self, attempt: Attempt) -> None:
        """The engine said so in its stream."""
        self.unlisten()
        failed = UpstreamFailed("The engine failed.", code="upstream_failed")
        self._lose(attempt, failed, is_break=True)

    def _ended(self, attempt: Attempt, error: UpstreamFailed, *, is_break: bool) -> None:
        """The member sends no more: the stream is complete, or this attempt is lost."""
        self._over = self._stream.done
        if not self._over:
            self._lose(attempt, error, is_break=is_break)

    def _lose(self, attempt: Attempt, error: UpstreamFailed, *, is_break: bool) -> None:
        if is_break:
            self._attempts.tried.broke(attempt.broke(), begun=True)
        attempt.close()
        self._attempt = None
        self._lost = error
        self._attempts.tried.failed(attempt.member)

    async def _resume(self) -> bytes:
        """Another member takes over; returns the last events if nothing is left to generate."""
        assert self._lost is not None, "only a lost answer is resumed"
        try:
            await self._settle()
            plan = self._stream.resume(self._limits)
            if isinstance(plan, EngineRequest):
                call = self._asking(plan.endpoint.value, plan.fields, self._call.purpose)
                self._attempt = await self._attempts.begin(call)
            elif isinstance(plan, SameChat):
                self._attempt = await self._attempts.begin(self._call.going_on(plan.told))
                self._attempt.response.end.told = plan.tokens
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
        """The lost engine may have held back bytes of a character: another engine's tokenizer shows where the
        text that was sent ends."""
        while tokens := self._stream.unsettled:
            fields = {"model": self._call.model, "tokens": tokens}
            attempt = await self._attempts.begin(self._asking(DETOKENIZE, fields, Purpose.HELP))
            try:
                if attempt.response.is_stream:
                    raise UpstreamFailed("The engine cannot detokenize.", code="upstream_failed")
                answer = await attempt.response.read()
            finally:
                attempt.close()
            try:
                self._stream.settle(msgspec.json.decode(answer, type=Detokenized).prompt)
            except msgspec.DecodeError:
                raise UpstreamFailed("The engine cannot detokenize.", code="upstream_failed") from None

    def _asking(self, target: str, fields: dict[str, Any], purpose: Purpose) -> Call:
        """A request of the gateway's own, for members that give token ids. The first token's time-out bounds
        it, as it bounds the client's own request."""
        body = msgspec.json.encode(fields)
        return msgspec.structs.replace(
            self._call,
            purpose=purpose,
            slot=msgspec.structs.replace(self._call.slot, needs_token_ids=True),
            message=self._call.message.to(target, fields, body, streams=True),
            resumes=None,
        )
