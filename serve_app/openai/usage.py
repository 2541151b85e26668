"""What the end of an answer says: tokens, why it ended, and the times that the engine measured.

Every stream of a vLLM engine is asked for usage, which comes in its last event. Most bytes pass as they came,
searched at C speed; only that event is decoded, once.
"""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from serve_app.openai.sse import ENDS, EVENT_END, NO_CHOICES

FINISH_REASON = re.compile(rb'"finish_reason"\s*:\s*"(\w+)"')
"""A text cannot contain it: its quotes would be escaped."""

USAGE = re.compile(rb'"usage"\s*:\s*(\{(?:[^{}]|\{[^{}]*\})*\})')
"""Nor this one, for the same reason."""

ENDING_BYTES = 4096
"""In so many of an answer's first or last bytes its usage stands, where it is not decoded as a whole."""

REASON = re.compile(r"[A-Za-z0-9_]{1,32}")

MOST_TOKENS = 1 << 40
DAY_MS = 86_400_000.0
"""What a member says beyond these is an error of its own; it must not become an error of ours."""

COUNTS = re.compile(rb'"(prompt|completion|input|output)_tokens"\s*:\s*(\d{1,12})\b')
"""Neither can it contain these. OpenAI's names, and those of the Responses and Messages APIs."""

END_BYTES = 65_536
"""The counts stand this near to the end."""

METRICS = b'"metrics":'
DATA = b"data:"

T = TypeVar("T")


class TokenCounts(msgspec.Struct, frozen=True):
    """Tokens of one answer, as its member counted them; ``None`` where it did not say. ``cached``: tokens of
    the prompt whose keys and values the member still had. ``accepted``: tokens of the answer that were
    drafted by speculative decoding."""

    prompt: int | None = None
    output: int | None = None
    cached: int | None = None
    accepted: int | None = None


NO_TOKENS = TokenCounts()


def counts_at_end(end: bytes) -> TokenCounts:
    """The tokens that the last bytes of an answer, or of a part of one, speak of."""
    found = {name: int(count) for name, count in COUNTS.findall(end[-END_BYTES:])}
    prompt, output = found.get(b"prompt", found.get(b"input")), found.get(b"completion", found.get(b"output"))
    return TokenCounts(prompt, output)


class AnswerEnd:
    """Keeps where the counts of tokens stand. Feed it all bytes of an answer: every token passes here."""

    def __init__(self) -> None:
        self.pieces = self.size = 0
        """Events of a stream, and bytes."""
        self.told = 0
        """Tokens that the member was told, and counts as its own."""
        self._newest = self._before = b""

    def feed(self, piece: bytes) -> None:
        if piece:
            self.pieces += piece.count(b"\n\n") or 1
            self.size += len(piece)
            self._before, self._newest = self._newest, piece

    def again(self) -> None:
        """All of it will be fed once more."""
        self.pieces = self.size = 0

    def tokens(self, is_stream: bool, per_piece: float = 1.0) -> TokenCounts:
        """Tokens of the answer as far as it came. A stream that does not say, such as one that was left
        early, has about ``per_piece`` for each piece."""
        counts = counts_at_end(self._before + self._newest)
        if counts.output is None:
            return TokenCounts(counts.prompt, round(self.pieces * per_piece)) if is_stream else counts
        return TokenCounts(counts.prompt, max(0, counts.output - self.told)) if self.told else counts


class EngineTimes(msgspec.Struct, frozen=True):
    """What the engine itself measured, in milliseconds; ``None`` where it did not. ``queue_ms`` ends when the
    request is first scheduled, ``prefill_ms`` with its first token, ``decode_ms`` with its last."""

    queue_ms: float | None = None
    prefill_ms: float | None = None
    decode_ms: float | None = None


class Measured(msgspec.Struct, frozen=True):
    """The end of one answer."""

    tokens: TokenCounts = NO_TOKENS
    finish_reason: str | None = None
    engine: EngineTimes | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


class _AnyUsage(_Usage):
    """The usage of any endpoint: OpenAI's responses and Anthropic's messages name input and output, rerankers
    the total only."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    input_tokens_details: _Details | None = None


class _Speculation(msgspec.Struct):
    num_accepted_draft_tokens: int | None = None


class _Metrics(msgspec.Struct):
    """vLLM 0.29's ``PerRequestMetrics``: its time to first token begins when the request is scheduled."""

    queue_time_ms: float | None = None
    time_to_first_token_ms: float | None = None
    generation_time_ms: float | None = None
    speculative_decoding: _Speculation | None = None


class _Choice(msgspec.Struct):
    finish_reason: str | None = None


class _End(msgspec.Struct):
    """The usage event of a stream, or a whole answer; all else is passed over."""

    choices: list[_Choice] = []
    usage: _Usage | None = None
    metrics: _Metrics | None = None


class _RawMetrics(msgspec.Struct):
    metrics: msgspec.Raw = msgspec.Raw()


_end = msgspec.json.Decoder(_End)
_any_usage = msgspec.json.Decoder(_AnyUsage)
_raw_metrics = msgspec.json.Decoder(_RawMetrics)


class RelayedUsage:
    """The usage of a stream that is relayed unchanged: only its end is looked at, once."""

    def __init__(self) -> None:
        self._end = b""

    def feed(self, chunk: bytes) -> bytes:
        self._end = chunk if len(chunk) >= ENDING_BYTES else (self._end + chunk)[-ENDING_BYTES:]
        return chunk

    def measured(self) -> Measured:
        return measured_relayed(self._end)


class UsageFilter:
    """Passes a stream on, and keeps its usage event for :meth:`measured`. ``hides_usage``: the client did not
    ask for usage; ``shows_metrics``: it asked for what the engine measured.

    Most bytes pass unchanged; only a chunk with the mark, or one that ends inside an event, is split into
    events.
    """

    def __init__(self, *, hides_usage: bool = True, shows_metrics: bool = False) -> None:
        self.hides_usage = hides_usage
        self.shows_metrics = shows_metrics
        self._partial = b""
        self._usage = b""
        self._newest = self._before = b""  # where the reason of the end stands

    def feed(self, chunk: bytes) -> bytes:
        if not self._partial and chunk.endswith(ENDS) and NO_CHOICES.search(chunk) is None:
            self._before, self._newest = self._newest, chunk
            return chunk
        if self._partial and b"\n" not in chunk:  # do not search a long event again for every piece
            self._partial += chunk
            return b""
        data = self._partial + chunk
        kept: list[bytes] = []
        position = 0
        for end in EVENT_END.finditer(data):
            event = data[position : end.end()]
            position = end.end()
            kept.append(event if NO_CHOICES.search(event) is None else self._without_choices(event))
        self._partial = data[position:]
        passed = b"".join(kept)
        if passed:
            self._before, self._newest = self._newest, passed
        return passed

    def _without_choices(self, event: bytes) -> bytes:
        self._usage = event
        if self.hides_usage:
            return b""
        return event if self.shows_metrics else without_metrics(event, null=False)

    def rest(self) -> bytes:
        """The bytes of an event that never ended."""
        partial, self._partial = self._partial, b""
        return partial

    def measured(self) -> Measured:
        """What the stream has said of itself so far."""
        end = _decoded(_end, self._usage.strip().removeprefix(DATA)) if self._usage else None
        reasons = FINISH_REASON.findall(self._before + self._newest)
        return _measured(end or _End(), reasons[-1].decode() if reasons else None)


def measured_events(stream: bytes) -> Measured:
    """What a stream of which all bytes are known says of itself."""
    whole = UsageFilter()
    whole.feed(stream)
    return whole.measured()


def measured_whole(body: bytes) -> Measured:
    """What an answer that is not streamed says of itself."""
    end = _decoded(_end, body)
    if end is None:
        return Measured()
    return _measured(end, end.choices[-1].finish_reason if end.choices else None)


def measured_relayed(answer: bytes) -> Measured:
    """The tokens that an answer of any form names near its end or its beginning, as those of OpenAI, vLLM,
    Anthropic and Cohere do: large answers are not decoded."""
    found = USAGE.findall(answer[-ENDING_BYTES:]) or USAGE.findall(answer[:ENDING_BYTES])
    named = _decoded(_any_usage, found[-1]) if found else None
    if named is None:
        return Measured()
    prompt = named.prompt_tokens if named.prompt_tokens is not None else named.input_tokens
    output = named.completion_tokens if named.completion_tokens is not None else named.output_tokens
    if prompt is None and output is None:
        prompt = named.total_tokens
    details = named.prompt_tokens_details or named.input_tokens_details
    cached = None if details is None else _count(details.cached_tokens)
    return Measured(TokenCounts(_count(prompt), _count(output), cached))


def without_metrics(data: bytes, *, null: bool) -> bytes:
    """A usage event or a whole answer without what the engine measured. ``null``: the key stays, as in
    vLLM's whole answers."""
    if METRICS not in data:
        return data
    found = _decoded(_raw_metrics, data.strip().removeprefix(DATA))
    value = b"" if found is None else bytes(found.metrics)
    if not value.startswith(b"{"):
        return data
    at = data.rfind(METRICS + value)
    if at < 0:
        return data
    before, after = data[:at], data[at + len(METRICS) + len(value) :]
    if null:
        return before + METRICS + b"null" + after
    return before[:-1] + after if before.endswith(b",") else before + after.removeprefix(b",")


def _decoded(decoder: msgspec.json.Decoder[T], data: bytes) -> T | None:
    """``None`` for what another server wrote in another way."""
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _measured(end: _End, reason: str | None) -> Measured:
    usage, metrics = end.usage or _Usage(), end.metrics
    details = usage.prompt_tokens_details
    drafted = None if metrics is None else metrics.speculative_decoding
    return Measured(
        TokenCounts(
            prompt=_count(usage.prompt_tokens),
            output=_count(usage.completion_tokens),
            cached=None if details is None else _count(details.cached_tokens),
            accepted=None if drafted is None else _count(drafted.num_accepted_draft_tokens),
        ),
        reason if reason is not None and REASON.fullmatch(reason) else None,
        None
        if metrics is None
        else EngineTimes(
            _time(metrics.queue_time_ms),
            _time(metrics.time_to_first_token_ms),
            _time(metrics.generation_time_ms),
        ),
    )


def _count(tokens: int | None) -> int | None:
    return tokens if tokens is not None and 0 <= tokens < MOST_TOKENS else None


def _time(milliseconds: float | None) -> float | None:
    return milliseconds if milliseconds is not None and 0 <= milliseconds < DAY_MS else None
