"""One WebSocket between a client and its member: events in both directions, at the pace of the reader."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass, field

from deployments.gateway.endpoints.realtime_use import SessionUse
from deployments.gateway.request.connected import ClientGone
from deployments.gateway.request.exchange import Exchange
from deployments.gateway.request.socket import ClientSocket
from deployments.gateway.send.pinned import Pinned
from serve_app.errors import (
    BadRequest,
    NoReplica,
    PromptlyError,
    SessionTimeout,
    UpstreamFailed,
)
from serve_app.fleet import EngineReport
from serve_app.latency import LatencyWindows
from serve_app.openai.usage import Measured
from serve_app.realtime.base import Mark, Translator
from serve_app.realtime.closing import close_code, close_reason
from serve_app.realtime.events import (
    APPEND,
    UPDATE,
    ClientEvent,
    NewId,
    error_event,
    read_engine_event,
    read_event,
    to_json,
)
from serve_app.realtime.native import NativeSession
from serve_app.realtime.patience import Patience
from serve_app.realtime.transcription import TranscriptionSession
from serve_app.redaction import Redactor
from serve_app.settings.limits import LimitSettings
from serve_app.settings.realtime import RealtimeSettings
from serve_app.traffic import Traffic

FIRST_TEXT = "realtime-first-text"
"""Milliseconds from the first audio of an utterance to its first text; the client's own pace is in it."""

LAST_TEXT = "realtime-last-text"
"""Milliseconds from a commit to the whole text."""

SMALL = 16_384
"""Characters of an event that takes no turn: a quarter of a second of audio, far less than a millisecond."""

END_S = 5.0
"""How long a client that does not read may delay the end of its session."""

logger = logging.getLogger("ray.serve")

Check = Callable[[str], None]
Pin = Callable[[str], Awaitable[Pinned]]


@dataclass(frozen=True, slots=True)
class SessionParts:
    """What all sessions of a gateway share. ``turn``: decoding and resampling a large event takes
    milliseconds, so one of them is done between two rounds of the event loop, whosever it is."""

    settings: RealtimeSettings
    limits: LimitSettings
    redactor_of: Callable[[EngineReport], Redactor]
    latency: LatencyWindows
    traffic: Traffic
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class RealtimeSession:
    """``model``: checked already, if the client has named one; ``check`` another, which may raise any error;
    ``still_allowed``: the same for a key that may have changed, before a member gets anything; ``pin`` finds
    the member of one. It is one class because both directions read and change the same
    utterance.
    """

    def __init__(
        self,
        parts: SessionParts,
        socket: ClientSocket,
        *,
        model: str | None,
        check: Check,
        still_allowed: Check,
        pin: Pin,
        new_id: NewId,
    ) -> None:
        self._parts = parts
        self._settings = parts.settings
        self._stall_s = parts.limits.between_tokens_timeout_s
        self._socket = socket
        self._pinned: Pinned | None = None
        self._checked = model
        self._check = check
        self._still_allowed = still_allowed
        self._pin = pin
        self._new_id = new_id
        self._opening = TranscriptionSession(model, new_id)
        self._translator: Translator = self._opening
        self._may_send = asyncio.Event()
        self._may_send.set()
        self._began_at = self._committed_at = 0.0
        self._patience = Patience(parts.settings.idle_timeout_s, self._stall_s)
        self._exchange: Exchange = socket.exchange
        self._opened_ns = self._exchange.timeline.clock()
        self._used = SessionUse(self._exchange)

    async def run(self) -> None:
        """Until one side leaves or an error ends it; then both sides are closed."""
        error: PromptlyError | None = None
        try:
            async with asyncio.timeout(self._settings.max_session_s):
                await self._converse()
        except ClientGone:
            self._exchange.facts.client_gone = self._began_at > 0  # in the middle of an utterance
        except PromptlyError as failure:
            error = failure
        except TimeoutError:
            limit = f"{self._settings.max_session_s:g} s (realtime.max_session_s)"
            error = SessionTimeout(f"A session lasts at most {limit}: open another.", code="session_expired")
        except asyncio.CancelledError:
            error = NoReplica("The gateway is shutting down.", code="shutting_down")
            raise
        except Exception:
            logger.exception("realtime session %s failed", self._exchange.request_id)
            error = PromptlyError("The gateway failed.", code="internal_error")
        finally:
            await self._end(error)

    async def _end(self, error: PromptlyError | None) -> None:
        facts = self._exchange.facts
        self._used.end(self._utterance_s)
        facts.measured = Measured(self._used.tokens)  # the model's name is there since it was checked
        self._exchange.timeline.add("upstream", self._opened_ns)
        try:
            if self._pinned is not None:
                await self._pinned.close()
        finally:
            if error is not None:
                self._exchange.status = error.status
                facts.error = error.details.code or error.details.type
                await self._say_goodbye(error)

    async def _say_goodbye(self, error: PromptlyError) -> None:
        try:
            async with asyncio.timeout(END_S):
                await self._socket.send(error_event(error, self._new_id))
                await self._socket.close(close_code(error), close_reason(error))
        except (ClientGone, TimeoutError):
            pass

    async def _converse(self) -> None:
        self._patience.client_spoke(time.monotonic())
        await self._tell(self._opening.created(int(time.time())))
        while self._pinned is None:
            await self._take(await self._next())
        directions = {asyncio.ensure_future(self._from_client()), asyncio.ensure_future(self._from_member())}
        try:
            done, _ = await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()
        finally:
            for each in directions:
                each.cancel()
            await asyncio.gather(*directions, return_exceptions=True)

    # ---- from the client to the member ----

    async def _from_client(self) -> None:
        while True:
            await self._take(await self._next())

    async def _next(self) -> str | bytes:
        """Raises: SessionTimeout: the client is silent; UpstreamFailed: the member is; ClientGone."""
        while True:
            try:
                async with asyncio.timeout(self._patience.left_s(time.monotonic())):
                    message = await self._socket.receive()
            except TimeoutError:
                continue
            if _bytes_of(message) > self._settings.max_event_bytes:
                raise BadRequest(
                    f"The event is larger than {self._settings.max_event_bytes} bytes "
                    "(realtime.max_event_bytes).",
                    code="event_too_large",
                )
            return message

    async def _take(self, message: str | bytes) -> None:
        """One event of the client. An error in it is answered, and the session goes on."""
        event: ClientEvent | None = None
        await asyncio.sleep(0)  # events that have come already do not keep the loop from all others
        try:
            async with self._turn(message):
                event = read_event(message)
            await self._until_due()
            if event.type == UPDATE and event.session is None and event.model is not None:
                self._speak_native()
            async with self._turn(message):
                before_s = self._translator.audio_s
                step = self._translator.client(event)
            began = step.mark is Mark.BEGAN  # the seconds of each utterance begin at 0
            self._exchange.facts.audio_s += self._translator.audio_s - (0.0 if began else before_s)
        except BadRequest as error:
            await self._tell(error_event(error, self._new_id, None if event is None else event.event_id))
            return
        model = self._translator.model
        if model is not None and model != self._checked:
            self._check(model)
            self._checked = model
        if step.to_engine and model is not None:
            self._still_allowed(model)
        self._note(step.mark)
        for each in step.to_client:
            await self._tell(each)
        if step.to_engine and self._pinned is None:
            assert model is not None, "audio is taken once there is a model"
            await self._find_member(model)
        await self._send(step.to_engine)
        await self._used.heard(self._utterance_s)
        if event.type == APPEND:  # whatever else it says, a client without audio is silent
            self._patience.client_spoke(time.monotonic())

    def _turn(self, message: str | bytes) -> AbstractAsyncContextManager[None]:
        return nullcontext() if len(message) <= SMALL else _Turn(self._parts.turn)

    def _speak_native(self) -> None:
        if self._translator is self._opening and not self._opening.has_begun:
            self._translator = NativeSession(self._opening.model)

    async def _until_due(self) -> None:
        """Wait while the member is not done with the last utterance, and with audio that comes much faster
        than speech. Meanwhile nothing is read from the client.

        Raises: UpstreamFailed: the member does not finish.
        """
        while self._translator.must_wait:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._patience.stall_left_s(time.monotonic())):
                    await self._may_send.wait()
        ahead_s = self._translator.audio_s - (time.monotonic() - self._began_at)
        if self._began_at and ahead_s > self._settings.max_ahead_s:
            await asyncio.sleep(ahead_s - self._settings.max_ahead_s)

    async def _find_member(self, model: str) -> None:
        """Meanwhile the client is read a little ahead: one that leaves gives up its place in the queue."""

        async def find() -> Pinned:
            self._pinned = await self._pin(model)  # from here on the session's end closes it
            return self._pinned

        finding = asyncio.ensure_future(find())
        reading = asyncio.ensure_future(self._socket.read_ahead(self._settings.max_event_bytes))
        try:
            await asyncio.wait((finding, reading), return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                reading.result()
            pinned = await finding
        finally:
            for each in (finding, reading):
                each.cancel()
            await asyncio.gather(finding, reading, return_exceptions=True)
        await self._send((to_json({"type": UPDATE, "model": pinned.served_as}),))

    async def _send(self, messages: tuple[str, ...]) -> None:
        if not messages:
            return
        assert self._pinned is not None, "the first of them found a member"
        try:
            async with asyncio.timeout(self._stall_s):
                for each in messages:
                    await self._pinned.socket.send(each)
        except TimeoutError:
            raise UpstreamFailed(
                f"The engine took nothing for {self._stall_s:g} s (limits.between_tokens_timeout_s).",
                code="upstream_stalled",
            ) from None

    # ---- from the member to the client ----

    async def _from_member(self) -> None:
        assert self._pinned is not None
        redactor = self._parts.redactor_of(self._pinned.report)
        while True:
            message = await self._pinned.socket.receive()
            self._patience.engine_spoke(time.monotonic())
            text = redactor.text(message) if isinstance(message, str) else ""
            event = read_engine_event(text)
            step = self._translator.engine(event, text)
            self._note(step.mark)  # before anything is waited for: the next utterance may begin now
            await self._used.said(event)
            for each in step.to_client:
                await self._tell(each)

    async def _tell(self, message: str) -> None:
        """Raises: ClientGone: the client has left, or reads nothing."""
        try:
            async with asyncio.timeout(self._settings.idle_timeout_s):
                await self._socket.send(message)
        except TimeoutError:
            raise ClientGone from None

    # ---- what is measured ----

    def _note(self, mark: Mark | None) -> None:
        now = time.monotonic()
        if self._translator.must_wait:
            self._may_send.clear()
        else:
            self._may_send.set()
        self._patience.note(now, is_finishing=self._translator.is_finishing, has_ended=mark is Mark.DONE)
        match mark:
            case Mark.BEGAN:
                self._began_at = now
                self._used.begin()
            case Mark.TEXT:
                self._parts.latency.record(FIRST_TEXT, (now - self._began_at) * 1000)
            case Mark.COMMITTED:
                self._committed_at = now
            case Mark.DONE:
                self._finished(now)

    @property
    def _utterance_s(self) -> float:
        """Audio of the utterance that a member works on."""
        return self._translator.audio_s if self._began_at and self._pinned is not None else 0.0

    def _finished(self, now: float) -> None:
        if self._committed_at:
            self._parts.latency.record(LAST_TEXT, (now - self._committed_at) * 1000)
        self._began_at = self._committed_at = 0.0
        self._parts.traffic.realtime_utterances += 1


class _Turn:
    """One round of the event loop passes in it, then the work that it is for is done."""

    def __init__(self, turn: asyncio.Lock) -> None:
        self._turn = turn

    async def __aenter__(self) -> None:
        await self._turn.acquire()
        try:
            await asyncio.sleep(0)
        except BaseException:
            self._turn.release()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._turn.release()


def _bytes_of(message: str | bytes) -> int:
    if isinstance(message, bytes) or message.isascii():
        return len(message)
    return len(message.encode())
