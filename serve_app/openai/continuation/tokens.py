"""The tokens of an answer, and which of them the client has received as text."""

from __future__ import annotations

import msgspec

MOST_TOKENS = 1 << 21
"""Twice the longest contexts. Tokens beyond this are not remembered."""

INCOMPLETE = "\N{REPLACEMENT CHARACTER}"
"""What an incomplete character decodes to: vLLM holds such tokens back until the rest arrives."""


class AnswerTokens:
    """Tokens in order of arrival, and how much of their text was passed on (*shown*).

        | shown for certain | shown, perhaps | not shown |
        0                 _sure           _shown       count

    vLLM holds back the bytes of an incomplete character. After a chunk of one token with text, that token is
    shown; of several tokens, the last may have been held back, which only a tokenizer can decide. A prompt
    must never end inside a character: the engine would send the whole prompt's text as its answer.
    """

    def __init__(self) -> None:
        self.count = 0
        self.textless_chunks = 0
        """Chunks without text since the last one with text."""
        self.pieces: list[bytes] = []
        """The ids of each chunk, as in JSON without the brackets."""
        self._sure = 0
        self._shown = 0

    def add(self, ids: bytes, has_text: bool) -> None:
        """Take in a chunk. The ids are decoded only when needed: most streams end normally."""
        new = ids.count(b",") + 1
        self.count += new
        self.pieces.append(ids)
        if not has_text:
            self.textless_chunks += 1
            return
        self.textless_chunks = 0
        self._shown = self.count
        if new == 1:
            self._sure = self._shown

    @property
    def unsettled(self) -> list[int]:
        """Tokens of which the last may not be shown; the first one begins a character."""
        return self.ids()[self._sure : self._shown]

    def settle(self, text: str) -> None:
        """Take in the text of the ``unsettled`` tokens: if it ends inside a character, the last token is not
        shown, and the ones before it are still unsettled."""
        if text.endswith(INCOMPLETE):
            self._shown -= 1
        else:
            self._sure = self._shown

    def forget_what_is_not_shown(self) -> None:
        shown = self.ids()[: self._shown]
        self.pieces = [b",".join(b"%d" % token for token in shown)] if shown else []
        self.count = len(shown)
        self.textless_chunks = 0

    def ids(self) -> list[int]:
        return decode_ids(b",".join(self.pieces))


def decode_ids(ids: bytes) -> list[int]:
    return msgspec.json.decode(b"[%b]" % ids, type=list[int])
