"""One client's stream, from one or more engines: a broken one goes on as a text completion."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from serve_app.openai.continuation import layout
from serve_app.openai.continuation.eligibility import KEPT_FIELDS
from serve_app.openai.continuation.events import EventStream
from serve_app.openai.continuation.plan import Ending, EngineRequest, TokenLimits
from serve_app.openai.continuation.tokens import MOST_TOKENS, AnswerTokens, decode_ids
from serve_app.openai.requests import Endpoint, ParsedRequest


class ResumableStream(EventStream):
    """Passes a stream on, remembers its tokens, and says how to continue when it ends too early.

    Send ``opening``, feed the engine's bytes and pass on what ``feed`` returns. If the bytes end or
    ``failure`` is set before ``done``: settle what is ``unsettled``, act on the result of ``resume``, and
    feed on. It is one class because every token passes through it, and all methods share its position in the
    stream.
    """

    def __init__(self, request: ParsedRequest, *, include_usage: bool = False) -> None:
        """``request`` has no ``obstacle``; ``include_usage`` asks for usage even if the client did not."""
        wants_usage = include_usage or request.generation.wants_usage
        of_tokens, plain = layout.TOKENS[request.endpoint], layout.PLAIN[request.endpoint]
        super().__init__(of_tokens.match, plain.match, wants_usage=wants_usage)
        self._request = request
        self._write = layout.TOKEN_EVENT[request.endpoint]
        self._tokens = AnswerTokens()
        self._repeated_chunks = 0  # chunks without text that were sent and that the next engine will repeat

    @property
    def opening(self) -> EngineRequest:
        """The client's own request, with token ids requested."""
        fields: dict[str, Any] = {**self._request.fields, "return_token_ids": True}
        if self._wants_usage:
            fields["stream_options"] = {**(fields.get("stream_options") or {}), "include_usage": True}
        return EngineRequest(self._request.endpoint, fields)

    @property
    def unsettled(self) -> list[int]:
        """Tokens of which the last may not be shown yet. Decode them with an engine's ``/detokenize`` and
        call ``settle``, until none is left; otherwise the stream cannot be resumed."""
        return self._tokens.unsettled

    def settle(self, text: str) -> None:
        """Take in the text of the ``unsettled`` tokens."""
        self._tokens.settle(text)

    def resume(self, limits: TokenLimits) -> EngineRequest | Ending | None:
        """How to continue after the engine was lost: a request for another engine, or the events that are
        left to send; ``None`` if the stream cannot be continued. Without new bytes in between, a second call
        returns the same.

        If nothing was passed on yet, the stream starts over.
        """
        if not self._understood:
            return None
        if not self._head:
            return self._begin(self.opening)
        if self._finished:
            return Ending(self._rest())
        allowed = limits.answer_tokens(self._request, self._prompt_tokens)
        if allowed is None or not self._prompt_ids or self._tokens.unsettled:
            return None
        self._repeated_chunks += self._tokens.textless_chunks
        self._tokens.forget_what_is_not_shown()
        if self._tokens.count >= allowed:
            last = self._write(self._head, layout.Chunk(layout.NO_TEXT, finish=b'"length"'))
            return Ending(last + self._rest())
        self._continuing = True
        self._match = layout.TOKENS[Endpoint.COMPLETIONS].match
        return self._begin(self._continuation(allowed - self._tokens.count))

    def _begin(self, request: EngineRequest) -> EngineRequest:
        self.forget_the_rest()
        return request

    def _continuation(self, max_tokens: int) -> EngineRequest:
        """A text completion that continues from the shown tokens."""
        asked = self._request.fields
        fields = {name: value for name, value in asked.items() if name in KEPT_FIELDS}
        fields["prompt"] = decode_ids(self._prompt_ids) + self._tokens.ids()
        fields["max_tokens"] = max_tokens
        fields["min_tokens"] = max(0, (asked.get("min_tokens") or 0) - self._tokens.count)
        fields |= {"stream": True, "return_token_ids": True}
        if self._wants_usage:
            fields["stream_options"] = {"include_usage": True}
        return EngineRequest(Endpoint.COMPLETIONS, fields)

    def _took(self, ids: bytes) -> bool:
        if self._continuing or self._tokens.count >= MOST_TOKENS:
            return False
        self._tokens.add(ids, True)
        return True

    def _pass_tokens(self, match: re.Match[bytes]) -> bytes:
        """An event with tokens, text or not."""
        text, finish, stop, tail, ids = match.group("text", "finish", "stop", "tail", "ids")
        if finish in layout.BROKEN_OFF:
            return self._fail(match.group())
        if not self._head:
            self._head, self._prompt_ids = match["head"], match.groupdict().get("prompt") or b""
        has_text = text is not None and text != layout.NO_TEXT
        if ids and self._tokens.count < MOST_TOKENS:
            self._tokens.add(ids, has_text)
        elif ids or has_text or ids is None:
            self._understood = False  # text whose tokens are not known
        if finish is not None:
            self._finished = True
        elif not has_text and self._is_superfluous(text):
            return b""
        return self._write(self._head, layout.Chunk(text, finish, stop, tail))

    def _is_superfluous(self, text: bytes | None) -> bool:
        """Whether a chunk without text would not appear in an undisturbed stream."""
        if text is None:
            self._understood = False  # a parser of the engine held it: its text is not the shown text
            return True
        if self._repeated_chunks:
            self._repeated_chunks -= 1
            return True
        return False

    def _pass_usage(self, event: bytes, usage: re.Match[bytes]) -> bytes:
        return self._usage(usage["tail"]) if self._continuing else event

    def _new_role(self, event: bytes) -> re.Match[bytes] | None:
        return None if self._head else super()._new_role(event)

    @property
    def _pieces(self) -> Sequence[bytes]:
        return self._tokens.pieces

    @property
    def _answer_tokens(self) -> int:
        return self._tokens.count
