"""What vLLM says of wrong fields, which are lines of Python, as sentences with JSON's words."""

from __future__ import annotations

import ast
import re

FIELD = re.compile(
    r"^  \{'type': '(?P<kind>\w+)', 'loc': \((?P<place>.*?)\), "
    r"'msg': (?P<what>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"), 'input': ",
    re.MULTILINE,
)
"""A wrong field as vLLM tells it: a line of Python, for each form that the field might have."""

STEP = re.compile(r"'((?:[^'\\]|\\.)*)'|(\d+)")
FORM = re.compile(r"[\[\](){}]|^(?:str|int|float|bool|list|dict|tuple|none|json-or-python)$")
"""Steps of a place that name no field, but a form that it might have."""

FORMS = (
    ("dictionary or object to extract fields from", "object"),
    ("dictionary", "object"),
    ("list", "array"),
)
MOST_FIELDS = 8
MOST_CHARACTERS = 1 << 16
"""What is read of a message: vLLM writes a line, with all that was sent, for each wrong item of a list."""


def plainly_told(message: str) -> str:
    """vLLM's message about wrong fields as sentences; other messages as they are."""
    if "validation error" not in message[:40]:
        return message
    told: dict[str, None] = {}
    for found in FIELD.finditer(message[:MOST_CHARACTERS]):
        told[_sentence(found)] = None
        if len(told) == MOST_FIELDS:
            break
    return " ".join(told) or message


def _sentence(found: re.Match[str]) -> str:
    name, what = _field(found["place"]), _text(found["what"])
    if found["kind"] == "missing":
        return f"Missing required field `{name}`."
    if what.startswith("Input should be"):
        what = "expected" + what.removeprefix("Input should be")
        for theirs, ours in FORMS:
            what = re.sub(rf"\b{theirs}\b", ours, what)
    return f"Invalid value for `{name}`: {what.removeprefix('Value error, ').rstrip('.')}."


def _text(written: str) -> str:
    """Of a text as Python writes it; a server that is not vLLM may write another kind of escapes."""
    try:
        return str(ast.literal_eval(written))
    except (SyntaxError, ValueError):
        return written[1:-1]


def _field(place: str) -> str:
    """``('body', 'tools', 0, 'name')`` as ``tools[0].name``."""
    steps = [(name, number) for name, number in STEP.findall(place) if number or not FORM.search(name)]
    path = "".join(f"[{number}]" if number else f".{name}" for name, number in steps)
    return path.removeprefix(".body").removeprefix(".") or "body"
