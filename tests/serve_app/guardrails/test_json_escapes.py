"""Escapes in the arguments of tool calls: guards see what a client's JSON parser makes of them."""

from __future__ import annotations

import json
import random
from itertools import pairwise

import pytest

from serve_app.guardrails.escapes import Unescaped, unescaped
from serve_app.guardrails.mask import Masker
from serve_app.guardrails.texts import Texts, with_texts

MASKER = Masker(("email", "phone", "card"))

HIDDEN = (
    r'{"a": "john\u0040example.com"}',
    r'{"a": "john@example\u002ecom"}',
    r'{"a": "\u006a\u006F\u0068n\u0040example.com"}',
    r'{"a": "\u0034111111111111111"}',
    r'{"a": "4111\u00a01111\u00a01111\u00A01111"}',
    r'{"a": "+49 30\/901820"}',
    r'{"a": "\u0438\u0432\u0430\u043d@\u043f\u0440\u0438\u043c\u0435\u0440.\u0440\u0444"}',
    r'{"a": "\uff0b442079460958"}',
    r'{"a": "4111\u00201111\u00201111 1111"}',
)
STAYING = (
    r'{"a": "\\u0040 \\\u0041 \" \u0022 \u005c \u000a \n \t \b \u007f"}',
    r'{"a": "C:\\users\\u0040", "b\/c": "\ud83d\ude00 \ud83d x \ude00 \ud83d\u0041 \ud83d\n"}',
    r'{"\u00e9": "\u2028 \u4e2d\u6587 \\\\\u0040"}',
    r"\u00zz \u12 \ud83d\ude0 \x \u004",
    "ends with \\",
    "ends with \\ud83d\\u",
)


def in_pieces(text: str, *cuts: int) -> str:
    """Unescaped and then masked, as in a stream."""
    escapes, mask = Unescaped(), MASKER.stream(in_json=True)
    passed = [mask.feed(escapes.feed(text[begin:end])) for begin, end in pairwise((0, *cuts, len(text)))]
    return "".join(passed) + mask.feed(escapes.feed("", final=True), final=True)


@pytest.mark.parametrize("text", HIDDEN)
def test_what_is_written_with_escapes_is_masked_wherever_it_is_cut(text: str) -> None:
    whole = MASKER.masked(unescaped(text), in_json=True)
    assert json.loads(whole)["a"] in ("[email]", "[phone]", "[card]")
    assert all(in_pieces(text, place) == whole for place in range(len(text) + 1))
    assert in_pieces(text, *range(len(text))) == whole


@pytest.mark.parametrize("text", STAYING)
def test_json_without_its_escapes_says_the_same_wherever_it_is_cut(text: str) -> None:
    whole = unescaped(text)
    for one in range(len(text) + 1):
        for two in range(one, len(text) + 1):
            escapes = Unescaped()
            parts = [escapes.feed(text[:one]), escapes.feed(text[one:two]), escapes.feed(text[two:])]
            assert "".join(parts) + escapes.feed("", final=True) == whole
    assert unescaped(whole) == whole
    if text.startswith("{"):
        assert json.loads(whole) == json.loads(text)


def test_random_json_says_the_same_without_its_escapes() -> None:
    chance = random.Random(21)
    parts = [
        "\\",
        "u",
        '"',
        "/",
        "a",
        "0",
        "@",
        "\n",
        "\x00",
        "\x7f",
        "é",
        "中",
        "\U0001f600",
        "\ud83d",
        "\ude00",
    ]
    for _ in range(500):
        value = {"".join(chance.choices(parts, k=5)): "".join(chance.choices(parts, k=20))}
        text = json.dumps(value)
        assert json.loads(unescaped(text)) == json.loads(text)


def test_no_more_than_one_escape_is_held_back() -> None:
    escapes = Unescaped()
    assert escapes.feed("abc\\ud83d\\ude0") == "abc"
    assert escapes.feed("0x\\\\u") == "\U0001f600x\\\\u"
    assert escapes.feed("\\u00") == ""
    assert escapes.feed("40") == "@"


def test_a_whole_call_is_seen_without_escapes_and_left_as_it_is_unless_it_changes() -> None:
    call = {"tool_calls": [{"function": {"name": "f", "arguments": r'{"a": "john\u0040example.com"}'}}]}
    name, arguments = Texts(call).found
    assert (name.text, arguments.text) == ("f", '{"a": "john@example.com"}')
    left = with_texts(call, ["f", MASKER.masked(arguments.text, in_json=True)])
    assert left["tool_calls"][0]["function"]["arguments"] == '{"a": "[email]"}'
