"""The engine's text: made-up words that are a pure function of the seed and of all token ids before them.

``/v1/completions`` with the prompt's ids and the first k generated ids continues exactly as the undisturbed
answer would have.
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from array import array
from collections.abc import Sequence
from itertools import product
from typing import Any

from sim_engine.settings import NEVER, SimSettings

EOS = 2
FIRST_WORD = 1000
FIRST_PIECE = 8192
PIECE_IDS = 1 << 17
MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


SYLLABLES = [consonant + vowel for consonant in "bdkl" for vowel in "aeio"]
WORDS = [" " + "".join(syllables) for syllables in product(SYLLABLES, repeat=3)]
"""The 4,096 words of answers; the id of the first is ``FIRST_WORD``."""

PIECE = re.compile(r" (?:[bdkl][aeio]){3}\b|\s?\S{1,4}|\s")
"""One of ``WORDS``, or up to four characters of other text: about one token each."""

JSON_WORDS = {FIRST_WORD + index: b'"%b"' % word.encode() for index, word in enumerate(WORDS)}
JSON_WORDS[EOS] = b'""'
PACKED = {token: struct.pack("=I", token) for token in JSON_WORDS}


class PieceIds(dict[str, int]):
    """The id of every piece of text: that of the vocabulary, or a hash."""

    def __missing__(self, piece: str) -> int:
        token = FIRST_PIECE + zlib.crc32(piece.encode()) % PIECE_IDS
        if len(self) < PIECE_IDS:
            self[piece] = token
        return token


IDS = PieceIds((word, FIRST_WORD + index) for index, word in enumerate(WORDS))


def tokenise(text: str) -> list[int]:
    return [IDS[piece] for piece in PIECE.findall(text)]


def detokenise(ids: Sequence[int]) -> str:
    """The text of generated ids. A prompt's ids are hashes: their text is lost."""
    return "".join(WORDS[token - FIRST_WORD] for token in ids if token != EOS)


def render_chat(messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None) -> list[int]:
    """Ids of tools and conversation. An earlier answer gets the ids that it was generated with."""
    ids = [IDS["<|tools|>"], *tokenise(json.dumps(tools))] if tools else []
    for message in messages:
        ids += [IDS[f"<|{message['role']}|>"], *tokenise(_text_of(message.get("content")))]
        for call in message.get("tool_calls") or []:
            ids += [call_mark(call["function"]["name"]), *tokenise(call["function"]["arguments"])]
        ids.append(EOS)
    return [*ids, IDS["<|assistant|>"]]


def call_mark(name: str) -> int:
    """The token that begins a call of this tool."""
    return IDS[f"<|call|>{name}"]


def _text_of(content: Any) -> str:
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""


def trailing_words(ids: list[int]) -> int:
    """How many generated words stand at the end of ``ids``."""
    count = 0
    while count < len(ids) and FIRST_WORD <= ids[-1 - count] < FIRST_WORD + len(WORDS):
        count += 1
    return count


class Speaker:
    """Generates the tokens of one answer."""

    def __init__(self, settings: SimSettings, prompt: list[int], ignore_eos: bool) -> None:
        seed = zlib.crc32(str(settings.seed).encode())
        self._state = zlib.crc32(array("I", prompt).tobytes(), seed)
        self._left = NEVER if ignore_eos else max(0, settings.tokens - trailing_words(prompt))
        self._stop_below = 0 if ignore_eos else int(settings.stop_share * (1 << 32))

    def go_on_behind(self, ids: Sequence[int]) -> None:
        """As if it had generated these."""
        self._left -= len(ids)
        for token in ids:
            self._state = zlib.crc32(PACKED[token], self._state)

    def next(self) -> int:
        mixed = (self._state * GOLDEN) & MASK
        stops = self._left <= 0 or (mixed >> 20) & 0xFFFFFFFF < self._stop_below
        token = EOS if stops else FIRST_WORD + (mixed >> 52)
        self._left -= 1
        self._state = zlib.crc32(PACKED[token], self._state)
        return token
