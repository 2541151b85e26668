"""The question put to the served model, and what its answer means."""

from __future__ import annotations

import json
import math
from typing import Any
from uuid import UUID

import pytest

from serve_app.cache.grey_zone import judging_request, yes_share
from serve_app.cache.verdicts import Verdicts
from serve_app.openai.requests import Endpoint, parse_generation

ENTRY = UUID(int=1)


def answer(*likeliest: tuple[str, float]) -> bytes:
    tokens = [{"token": token, "logprob": math.log(share)} for token, share in likeliest]
    choice = {"logprobs": {"content": [{"token": "x", "top_logprobs": tokens}]}, "message": {"content": "x"}}
    return json.dumps({"choices": [choice], "id": "1"}).encode()


@pytest.mark.parametrize(
    ("likeliest", "share"),
    [
        ([("yes", 0.6), ("no", 0.2)], 0.75),
        ([(" Yes", 0.3), ("YES", 0.3), ("No", 0.2), ("maybe", 0.2)], 0.75),
        ([("no", 0.9)], 0.0),
        ([("yes", 0.1), ("The", 0.9)], 1.0),
    ],
)
def test_the_share_of_yes_goes_over_both_words_however_they_are_written(
    likeliest: list[tuple[str, float]], share: float
) -> None:
    assert yes_share(answer(*likeliest)) == pytest.approx(share)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"{}",
        b'{"choices": []}',
        b'{"choices": [{"logprobs": null}]}',
        answer(("perhaps", 1.0)),
        answer(),
    ],
)
def test_what_says_neither_says_nothing(body: bytes) -> None:
    assert yes_share(body) is None


def test_the_question_is_a_request_that_engines_take_and_begins_alike_for_every_pair() -> None:
    one, other = judging_request("m", "a?", "b?"), judging_request("m", "c?", "d?")
    parsed = parse_generation(Endpoint.CHAT, json.dumps(one).encode())
    assert parsed.model == "m"
    assert not parsed.generation.wants_stream
    assert one["messages"][0] == other["messages"][0]
    assert one["messages"][1] != other["messages"][1]


def test_a_verdict_holds_for_its_pair_however_the_text_is_written() -> None:
    verdicts = Verdicts()
    verdicts.put(ENTRY, "How far is it?", True)
    verdicts.put(UUID(int=2), "How far is it?", False)
    assert verdicts.get(ENTRY, "how far is it") is True
    assert verdicts.get(UUID(int=2), "how far is it") is False
    assert verdicts.get(ENTRY, "how near is it") is None


def test_the_verdicts_used_longest_ago_go_first() -> None:
    verdicts = Verdicts(2)
    for text in "ab":
        verdicts.put(ENTRY, text, True)
    verdicts.get(ENTRY, "a")
    verdicts.put(ENTRY, "c", False)
    found: list[Any] = [verdicts.get(ENTRY, text) for text in "abc"]
    assert found == [True, None, False]
    assert len(verdicts) == 2
