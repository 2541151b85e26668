"""Cuts a stream into its events, and passes on those that every stream has: comments, errors, the end."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from serve_app.openai import sse
from serve_app.openai.continuation import layout

Match = Callable[[bytes, int], re.Match[bytes] | None]


class EventStream(ABC):
    """Passes the events of one answer on. Subclasses say what becomes of those with tokens, and of those that
    a continuation repeats. It has this many methods because the events of one answer share one state."""

    def __init__(self, match: Match, plain: Match, *, wants_usage: bool) -> None:
        """``match`` finds an event with tokens; ``plain``, of :data:`layout.PLAIN`, what follows its head."""
        self.done = False
        """``[DONE]`` was passed on: the stream is complete."""
        self.failure: bytes | None = None
        """The engine's own error event (JSON). Neither it nor anything after it is passed on."""
        self._match = match
        self._plain = plain
        self._partial = b""
        self._wants_usage = wants_usage
        self._head = b""  # the beginning of every event; empty until one was passed on
        self._prompt_ids = b""  # as in JSON, without the brackets
        self._understood = True
        self._continuing = False
        self._finished = False
        self._usage_sent = False

    def feed(self, chunk: bytes) -> bytes:
        """Take in the engine's bytes; returns whole events for the client, as if token ids had not been
        requested and one engine had sent them all."""
        if self._partial and b"\n" not in chunk:  # do not search a long event again for every piece
            self._partial += chunk
            return b""
        if self._head and not self._partial and self.failure is None and chunk.startswith(self._head):
            plain = self._plain(chunk, len(self._head))
            if plain is not None and self._took(plain[1]):
                return layout.without_ids(chunk, plain)
        data = self._partial + chunk if self._partial else chunk
        passed: list[bytes] = []
        position = 0
        while position < len(data) and self.failure is None:
            match = self._match(data, position)
            if match is not None:
                passed.append(self._pass_tokens(match))
                position = match.end()
                continue
            end = data.find(sse.END, position)
            if end < 0:
                break
            passed.append(self._pass_other(data[position : end + len(sse.END)]))
            position = end + len(sse.END)
        self._partial = data[position:]
        return b"".join(passed)

    @abstractmethod
    def _took(self, ids: bytes) -> bool:
        """Nearly every token comes here: its event has some text and ends nothing. False, and nothing has
        changed: it is to go the long way."""

    def forget_the_rest(self) -> None:
        """What the lost engine left must not mix with the next engine's bytes."""
        self.failure = None
        self._partial = b""

    def _fail(self, event: bytes) -> bytes:
        self.failure = event.removeprefix(b"data:").strip()
        return b""

    @abstractmethod
    def _pass_tokens(self, match: re.Match[bytes]) -> bytes:
        """An event with tokens: every token passes through here."""

    def _pass_other(self, event: bytes) -> bytes:
        """Any other event: the first one of a chat, the last ones of every stream, and engines' additions."""
        if event.startswith(layout.COMMENT_START):
            return event
        if event.startswith(layout.ERROR_START):
            return self._fail(event)
        if event == layout.DONE_EVENT:
            self.done = True
            return event
        if self._finished and (usage := layout.USAGE.fullmatch(event)):
            self._usage_sent = True
            return self._pass_usage(event, usage)
        if role := self._new_role(event):
            return self._pass_role(role)
        self._understood = False
        return self._fail(event) if self._continuing else layout.without_token_ids(event)

    @abstractmethod
    def _pass_usage(self, event: bytes, usage: re.Match[bytes]) -> bytes:
        """The engine's usage, as the usage of the whole answer."""

    def _new_role(self, event: bytes) -> re.Match[bytes] | None:
        """The event as the first one of a chat, if it is one and may come now."""
        return layout.ROLE.fullmatch(event)

    def _pass_role(self, role: re.Match[bytes]) -> bytes:
        """The first event of a chat: it has the ids of the prompt."""
        self._head, self._prompt_ids = role["head"], role["prompt"] or b""
        return layout.role_event(self._head, role["choice"])

    def _rest(self) -> bytes:
        """What follows the last token and was not yet passed on."""
        if self.done:
            return b""
        usage = self._usage(b"") if self._wants_usage and not self._usage_sent else b""
        self.done = self._usage_sent = True
        return usage + layout.DONE_EVENT

    def _usage(self, tail: bytes) -> bytes:
        """The usage of the whole answer, without details, which would describe a continuation's prompt."""
        return layout.usage_event(self._head, self._prompt_tokens, self._answer_tokens, tail)

    @property
    def beginning(self) -> Sequence[bytes] | None:
        """The answer's tokens so far, ids as in JSON, in the pieces in which they came: the same list that
        grows, until another engine goes on. ``None``: they are not known, or are all."""
        return self._pieces if self._understood and not self._finished else None

    @property
    @abstractmethod
    def _pieces(self) -> Sequence[bytes]: ...

    @property
    def _prompt_tokens(self) -> int:
        return self._prompt_ids.count(b",") + 1 if self._prompt_ids else 0

    @property
    @abstractmethod
    def _answer_tokens(self) -> int: ...
