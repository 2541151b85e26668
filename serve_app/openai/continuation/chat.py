"""A chat's stream from engines that may be told the beginning of an answer.

Such an engine writes the events of the tokens that it is told again, with the parsers of tool calls and of
reasoning in the state that they had. These events are dropped; what follows is the rest of the same stream.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from serve_app.openai.continuation import layout
from serve_app.openai.continuation.events import EventStream
from serve_app.openai.continuation.plan import Ending, SameChat, TokenLimits
from serve_app.openai.continuation.tokens import MOST_TOKENS, decode_ids
from serve_app.openai.requests import Endpoint, ParsedRequest


class ResumableChat(EventStream):
    """Passes a chat's stream on and remembers its tokens, in the pieces in which they came. Used as
    ``ResumableStream``."""

    def __init__(self, request: ParsedRequest, *, include_usage: bool = False) -> None:
        """``request`` has no ``chat_obstacle``; ``include_usage`` asks for usage even if the client did
        not."""
        wants_usage = include_usage or request.generation.wants_usage
        super().__init__(layout.CHOICE.match, layout.PLAIN[Endpoint.CHAT].match, wants_usage=wants_usage)
        self._told: list[bytes] = []  # ids as in JSON, without the brackets
        self._count = 0
        self._repeated = 0  # tokens whose events the next engine will repeat

    @property
    def unsettled(self) -> list[int]:
        """None: an engine that is told tokens holds back what the other one held back."""
        return []

    def settle(self, text: str) -> None:
        """Part of the interface; nothing is unsettled."""

    def resume(self, limits: TokenLimits) -> SameChat | Ending | None:
        """How to continue after the engine was lost: the same chat for another engine, or the events that are
        left to send; ``None`` if the stream cannot be continued. The engine applies ``limits`` itself."""
        if not self._understood:
            return None
        if self._finished:
            return Ending(self._rest())
        self.forget_the_rest()
        self._continuing = bool(self._head)
        self._repeated = self._count
        return SameChat([decode_ids(piece) for piece in self._told])

    def _took(self, ids: bytes) -> bool:
        new = ids.count(b",") + 1
        if self._continuing or self._count + new > MOST_TOKENS:
            return False
        self._told.append(ids)
        self._count += new
        return True

    def _pass_tokens(self, match: re.Match[bytes]) -> bytes:
        head, choice, reason, finish, ids, tail = match.group(
            "head", "choice", "reason", "finish", "ids", "tail"
        )
        if finish in layout.BROKEN_OFF:
            return self._fail(match.group())
        new = ids.count(b",") + 1 if ids else 0
        if self._repeated:
            return self._drop(new, match.group())
        self._head = self._head or head
        if (not new and finish is None) or self._count + new > MOST_TOKENS:
            self._understood = False  # an event whose tokens are not known
        if new:
            self._told.append(ids)
            self._count += new
        if finish is not None:
            self._finished = True
        elif choice.startswith(layout.HELD_BACK):
            return b""  # it would not have been sent
        return layout.choice_event(self._head, choice, reason, tail)

    def _drop(self, tokens: int, event: bytes) -> bytes:
        """The event was passed on before."""
        self._repeated -= tokens
        if self._repeated < 0:  # a piece that did not come like this
            self._understood = False
            return self._fail(event)
        return b""

    def _pass_usage(self, event: bytes, usage: re.Match[bytes]) -> bytes:
        return layout.with_head(self._head, event, usage["head"])

    def _pass_role(self, role: re.Match[bytes]) -> bytes:
        return b"" if self._continuing else super()._pass_role(role)  # the client has it

    @property
    def _pieces(self) -> Sequence[bytes]:
        return self._told

    @property
    def _answer_tokens(self) -> int:
        return self._count
