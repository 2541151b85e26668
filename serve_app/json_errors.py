"""What our reader of JSON says of a body, in words that clients know: those of JSON."""

from __future__ import annotations

import re

import msgspec

NAMES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}
"""Python's and msgspec's names of types as JSON's, or, where JSON has one for two, as JSON Schema's."""

TYPES = re.compile(r"(Expected|, got) `(\w+(?: \| \w+)*)`")
HIGH_SURROGATE_AT_END = re.compile(rb"u[dD][89abAB][0-9a-fA-F]{2}[^\\].{0,4}\Z", re.DOTALL)
"""Behind a backslash: an escape of the first half of a character, with something else behind it. msgspec
takes a text that ends so for one whose end is missing."""

TAIL = 16
LONE_SURROGATE = (
    "a text in it has a lone surrogate: an escape such as `\\ud800` is half of a character, which is no "
    "valid Unicode without the other half"
)


def in_json_words(message: str) -> str:
    """msgspec's message (``Expected `int`, got `str```) with JSON's names of types."""
    return TYPES.sub(lambda found: f"{found[1]} `{_named(found[2])}`", message)


def _named(types: str) -> str:
    return " | ".join(dict.fromkeys(NAMES.get(each, each) for each in types.split(" | ")))


def no_json(error: Exception, body: bytes | str) -> str:
    """Why ``body`` cannot be read, where msgspec said ``error``."""
    data = body.encode(errors="surrogatepass") if isinstance(body, str) else body
    if isinstance(error, UnicodeDecodeError):
        return "it is not in UTF-8"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    said = str(error)
    if isinstance(error, msgspec.ValidationError):
        return in_json_words(said)
    if "utf-16 surrogate" in said or ("truncated" in said and _ends_with_half(data)):
        return LONE_SURROGATE
    return said


def _ends_with_half(data: bytes) -> bool:
    tail = data[-TAIL:]
    found = HIGH_SURROGATE_AT_END.search(tail)
    if found is None:
        return False
    before = data[: len(data) - len(tail) + found.start()]
    return (len(before) - len(before.rstrip(b"\\"))) % 2 == 1
