"""The grey zone: the served model answers yes or no for pairs about which the verifier is not sure."""

from __future__ import annotations

import math
from typing import Any

import msgspec

INSTRUCTION = (
    "You compare two questions. Say yes if every full and correct answer to the first question is also a "
    "full and correct answer to the second one. Say no if the two ask for different things, in a number, a "
    "name, a direction, a time, a negation or anything else. Reply with one word: yes or no."
)
"""It is the same for every pair, so that an engine with a prefix cache computes it once."""

YES, NO = "yes", "no"
TOP_LOGPROBS = 20
"""The most that OpenAI's format allows; a model that can judge has both words among them."""


def judging_request(model: str, first: str, second: str) -> dict[str, Any]:
    """A chat request whose answer is one token. ``first`` is the stored text, ``second`` the new one."""
    asked = f"First question: {first}\nSecond question: {second}\nOne answer for both?"
    return {
        "model": model,
        "messages": [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": asked}],
        "max_tokens": 1,
        "temperature": 0,
        "logprobs": True,
        "top_logprobs": TOP_LOGPROBS,
    }


class _Token(msgspec.Struct):
    token: str
    logprob: float


class _Position(msgspec.Struct):
    top_logprobs: list[_Token]


class _Logprobs(msgspec.Struct):
    content: list[_Position]


class _Choice(msgspec.Struct):
    logprobs: _Logprobs


class _Completion(msgspec.Struct):
    choices: list[_Choice]


def yes_share(body: bytes) -> float | None:
    """P(yes) / (P(yes) + P(no)) of the first token, whatever their case and spaces; ``None`` if the response
    has no log-probabilities, or neither word is among the likeliest tokens."""
    try:
        completion = msgspec.json.decode(body, type=_Completion)
        likeliest = completion.choices[0].logprobs.content[0].top_logprobs
    except (msgspec.DecodeError, IndexError):
        return None
    share = dict.fromkeys((YES, NO), 0.0)
    for candidate in likeliest:
        word = candidate.token.strip().lower()
        if word in share:
            share[word] += math.exp(min(0.0, candidate.logprob))
    total = sum(share.values())
    return share[YES] / total if total > 0 else None
