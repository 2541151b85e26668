"""JSON in which characters are written as themselves, so that guards see what a client will read.

What stays escaped: control characters, `"`, a backslash, and halves of pairs. The JSON says the same as
before.
"""

from __future__ import annotations

import re

_HIGH = r"u[dD][89abAB][0-9a-fA-F]{2}"
_LOW = r"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_LOW_BEGINS = r"\\(?:u(?:[dD](?:[c-fC-F][0-9a-fA-F]?)?)?)?"
ESCAPE = re.compile(
    rf"\\(?:(?P<pair>{_HIGH}{_LOW})"
    rf"|(?P<open>(?:{_HIGH}(?:{_LOW_BEGINS})?|u[0-9a-fA-F]{{0,3}})?\Z)"
    r"|(?P<one>u[0-9a-fA-F]{4})|(?P<slash>/)|[^u])"
)
"""``open``: what follows may still belong to it; at most eleven characters."""

STAYS = frozenset({*range(0x20), *b'"\\', 0x7F, *range(0xD800, 0xE000)})


class Unescaped:
    """A text that comes in pieces."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str, *, final: bool = False) -> str:
        """The part that no later piece can change; all at the ``final`` one."""
        text = self._held + piece
        self._held = ""
        if "\\" not in text:
            return text
        parts, at = [], 0
        for escape in ESCAPE.finditer(text):
            parts.append(text[at : escape.start()])
            at = escape.end()
            if escape["open"] is not None and not final:
                self._held = escape[0]
            else:
                parts.append(_character(escape))
        return "".join([*parts, text[at:]])


def unescaped(text: str) -> str:
    """A whole text."""
    return Unescaped().feed(text, final=True)


def _character(escape: re.Match[str]) -> str:
    if escape["slash"]:
        return "/"
    if escape["pair"]:
        high, low = int(escape[0][2:6], 16), int(escape[0][8:12], 16)
        return chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))
    code = int(escape["one"][1:], 16) if escape["one"] else None
    return escape[0] if code is None or code in STAYS else chr(code)
