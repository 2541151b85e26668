"""Answers on their way to one client, as its guards let them pass. What others are sent, and what the cache
keeps, is the engine's answer: each client's own guards look at it again."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

import msgspec

from deployments.gateway.guardrails.guards import Guard, Held
from deployments.gateway.guardrails.judges import MaskJudge
from deployments.gateway.request.answer import Answer, Head, OpenAnswer
from serve_app.errors import PromptlyError, UpstreamFailed
from serve_app.guardrails.contract import Text
from serve_app.guardrails.escapes import Unescaped
from serve_app.guardrails.events import (
    CALLS,
    Channel,
    calls_a_tool,
    event_with,
    hide_copies,
    index_of,
    is_idle,
    kind_of,
    other_values,
    part_of,
    pieces,
)
from serve_app.guardrails.mask import MaskStream
from serve_app.guardrails.texts import MEDIA
from serve_app.openai import sse
from serve_app.openai.chunks import StreamData

EVENTS = "text/event-stream"
EVENTS_AT_ONCE = 64
"""Looking at so many takes about 3 ms."""
JSON = "application/json"


class TextStream(Protocol):
    async def feed(self, piece: str, *, final: bool) -> str:
        """What may be passed on. Raises: GuardRefused, GuardUnavailable."""
        ...


class MaskedText:
    """Masked as it comes."""

    def __init__(self, stream: MaskStream) -> None:
        self._stream = stream

    async def feed(self, piece: str, *, final: bool) -> str:
        return self._stream.feed(piece, final=final)


class JudgedText:
    """Held back until its guard has judged it, in pieces or as a whole. A text that is longer than the guard
    takes is no longer held back."""

    def __init__(self, held: Held, guard: Guard, kind: str) -> None:
        self._of = held
        self._guard = guard
        self._kind = kind
        self._most = guard.settings.max_chars
        self._piece = guard.settings.piece_chars
        self._parts: list[str] = []
        self._size = 0
        self._is_too_long = False

    async def feed(self, piece: str, *, final: bool) -> str:
        self._parts.append(piece)
        self._size += len(piece)
        if self._is_too_long or self._size > self._most:
            self._is_too_long = True
            return await self._judged(self._taken())
        if not final and (self._piece is None or self._size < self._piece):
            return ""
        text = self._taken()
        step = self._piece or len(text) or 1
        end = len(text) if final else len(text) // step * step
        self._parts, self._size = [text[end:]], len(text) - end
        return "".join([await self._judged(text[at : at + step]) for at in range(0, end, step)])

    def _taken(self) -> str:
        """What is held back, which is then no more."""
        text = "".join(self._parts)
        self._parts, self._size = [], 0
        return text

    async def _judged(self, text: str) -> str:
        if self._is_too_long and not self._guard.settings.refuses_failure:
            return text
        (judged,) = await self._of.judge(self._guard, [Text(text, self._kind, "assistant")])
        return judged.text


class Texts:
    """The texts of one stream; one at a time of each choice is being said."""

    def __init__(self, held: Held) -> None:
        self._held = held
        self._streams: dict[Channel, list[TextStream]] = {}
        self._escapes: dict[Channel, Unescaped] = {}
        """Decoders of the texts that are JSON."""

    async def feed(self, channel: Channel, piece: str, *, final: bool = False) -> str:
        streams = self._streams.get(channel)
        if streams is None:
            streams = self._streams[channel] = [self._stream(each, channel) for each in self._held.guards]
            if kind_of(channel) == "arguments":
                self._escapes[channel] = Unescaped()
        escapes = self._escapes.get(channel)
        if escapes is not None:
            piece = escapes.feed(piece, final=final)
        for stream in streams:
            piece = await stream.feed(piece, final=final)
        if final:
            del self._streams[channel]
            self._escapes.pop(channel, None)
        return piece

    def of_other_parts(self, channel: Channel) -> list[Channel]:
        """The open texts of the same choice that are of another part: they end where this one begins."""
        part = part_of(channel)
        return [each for each in self._streams if each[0] == channel[0] and part_of(each) != part]

    def of_choice(self, index: int) -> list[Channel]:
        return [each for each in self._streams if each[0] == index]

    def all(self) -> list[Channel]:
        return list(self._streams)

    def _stream(self, guard: Guard, channel: Channel) -> TextStream:
        kind = kind_of(channel)
        if isinstance(guard.judge, MaskJudge):
            return MaskedText(guard.judge.masker.stream(in_json=kind == "arguments"))
        return JudgedText(self._held, guard, kind)


class EventGuard:
    """Server-sent events of a chat or a text completion."""

    def __init__(self, held: Held) -> None:
        self._held = held
        self._data = StreamData()
        self._texts = Texts(held)
        self._newest: dict[str, Any] = {}
        self.failure: PromptlyError | None = None

    async def feed(self, chunk: bytes) -> bytes:
        """Whole events that may be passed on; sets ``failure`` to what ends the stream behind them."""
        written: list[bytes] = []
        try:
            for number, data in enumerate(self._data.feed(chunk), start=1):
                if number % EVENTS_AT_ONCE == 0:
                    await asyncio.sleep(0)  # a stored answer comes at once
                if data == sse.DONE:
                    for channel in self._texts.all():
                        await self._end(channel, written)
                    written.append(sse.event(data))
                else:
                    await self._event(data, written)
        except PromptlyError as error:
            self.failure = error
        return b"".join(written)

    async def _event(self, data: bytes, written: list[bytes]) -> None:
        try:
            event = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise UpstreamFailed("The engine's answer is no event in JSON.", code="upstream_failed") from None
        choices = event.get("choices") if isinstance(event, dict) else None
        if not isinstance(choices, list) or not choices:
            written.append(sse.event(data))
            return
        self._newest = event
        hide_copies(event)
        had_text = False
        for choice in choices:
            had_text |= await self._choice(choice, written)
        if not (had_text and is_idle(event)):
            written.append(sse.json_event(event))

    async def _choice(self, choice: dict[str, Any], written: list[bytes]) -> bool:
        """Whether it had a text."""
        hide_copies(choice)
        ends = choice.get("finish_reason") is not None
        said = [piece for piece in pieces(choice) if piece.text]
        if calls_a_tool(choice):  # its first event may have no arguments yet
            await self._end_others((index_of(choice), CALLS[0], 0), written)
        for piece in said:
            await self._end_others(piece.channel, written)
            piece.holder[piece.key] = await self._texts.feed(piece.channel, piece.text)
        for holder, key in other_values(choice):
            await self._judge_value(holder, key)
        if ends:
            for channel in self._texts.of_choice(index_of(choice)):
                await self._end(channel, written)
        return bool(said)

    async def _judge_value(self, holder: dict[str, Any], key: str) -> None:
        """What is sent at once. Of media, only what is written beside them is looked at."""
        if key in MEDIA and not isinstance(holder[key], str):
            holder[key] = await self._held.judged(holder[key])
        else:
            holder[key] = (await self._held.judged({key: holder[key]}))[key]

    async def _end_others(self, channel: Channel, written: list[bytes]) -> None:
        """What was said before has ended where another part of the answer begins."""
        for other in self._texts.of_other_parts(channel):
            await self._end(other, written)

    async def _end(self, channel: Channel, written: list[bytes]) -> None:
        """The text has ended: pass on what was held back of it."""
        rest = await self._texts.feed(channel, "", final=True)
        if rest:
            written.append(sse.json_event(event_with(self._newest, channel, rest)))


class GuardedAnswer:
    """An answer to one client."""

    def __init__(self, answer: Answer, held: Held) -> None:
        self._answer = answer
        self._held = held

    async def begin(self) -> OpenAnswer:
        opened = await self._answer.begin()
        if opened.head.status != 200:
            return opened
        guarded = GuardedEvents if opened.head.is_stream else GuardedWhole
        return guarded(opened, self._held)

    def close(self) -> None:
        self._answer.close()


class GuardedEvents:
    """A stream."""

    def __init__(self, answer: OpenAnswer, held: Held) -> None:
        self.head: Head = answer.head
        self._answer = answer
        self._events = EventGuard(held)

    async def read(self) -> bytes:
        while self._events.failure is None:
            chunk = await self._answer.read()
            passed = await self._events.feed(chunk)
            if passed or not chunk:
                return passed
        raise self._events.failure

    def close(self) -> None:
        self._answer.close()


class GuardedWhole:
    """An answer that is sent at once; it may be a stream of which all bytes are known."""

    def __init__(self, answer: OpenAnswer, held: Held) -> None:
        self.head: Head = answer.head
        self._answer = answer
        self._held = held
        self._is_read = False

    async def read(self) -> bytes:
        if self._is_read:
            return b""
        parts = []
        while part := await self._answer.read():
            parts.append(part)
        self._is_read = True
        return await guarded_body(self._held, self.head.content_type, b"".join(parts))

    def close(self) -> None:
        self._answer.close()


async def guarded_body(held: Held, content_type: str, body: bytes) -> bytes:
    """A whole answer after its guards. Raises: GuardRefused, GuardUnavailable, UpstreamFailed."""
    if content_type.startswith(EVENTS):
        events = EventGuard(held)
        passed = await events.feed(body)
        if events.failure is not None:
            raise events.failure
        return passed
    if not content_type.startswith(JSON):
        (text,) = await held.judged([body.decode(errors="replace")])
        return str(text).encode()
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise UpstreamFailed("The engine's answer is no JSON.", code="upstream_failed") from None
    if isinstance(value, dict):
        hide_copies(value)
        for choice in value.get("choices") or ():
            hide_copies(choice)
    return msgspec.json.encode(await held.judged(value))
