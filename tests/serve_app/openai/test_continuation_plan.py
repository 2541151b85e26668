"""How long an answer may be, and what is asked for the rest of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from samples import CHAT, chat_request, completion_request

from serve_app.openai.continuation import EngineRequest, TokenLimits


@pytest.mark.parametrize(
    ("limits", "fields", "expected"),
    [
        (TokenLimits(100), {}, 90),
        (TokenLimits(100), {"max_tokens": 20}, 20),
        (TokenLimits(100), {"max_tokens": 20, "max_completion_tokens": 30}, 30),
        (TokenLimits(100, default=50), {}, 50),
        (TokenLimits(100, default=50), {"max_tokens": 70}, 70),
        (TokenLimits(100, default=50, cap=50), {"max_tokens": 70}, 50),
        (TokenLimits(100, default=500), {}, 90),
        (TokenLimits(5), {}, -5),
        (TokenLimits(), {"max_tokens": 20}, 20),
        (TokenLimits(), {}, None),
        (TokenLimits(default=50), {}, None),
    ],
)
def test_a_chats_answer_is_as_long_as_its_engine_lets_it(
    limits: TokenLimits, fields: dict[str, Any], expected: int | None
) -> None:
    assert limits.answer_tokens(chat_request(**fields), prompt_tokens=10) == expected


@pytest.mark.parametrize(
    ("limits", "fields", "expected"),
    [
        (TokenLimits(100), {}, 16),
        (TokenLimits(100, default=50), {}, 16),
        (TokenLimits(20), {}, 10),
        (TokenLimits(100), {"max_tokens": 20}, 20),
        (TokenLimits(100, cap=5), {"max_tokens": 20}, 5),
        (TokenLimits(), {}, 16),
    ],
)
def test_a_text_completion_without_a_limit_has_sixteen_tokens(
    limits: TokenLimits, fields: dict[str, Any], expected: int
) -> None:
    assert limits.answer_tokens(completion_request(**fields), prompt_tokens=10) == expected


def test_a_text_completion_without_any_limit_is_as_long_as_its_engine_lets_it() -> None:
    request = completion_request(max_tokens=None)

    assert TokenLimits(100, default=50).answer_tokens(request, prompt_tokens=10) == 50
    assert TokenLimits(100).answer_tokens(request, prompt_tokens=10) == 90


def test_a_body_may_name_the_model_as_its_engine_does() -> None:
    request = EngineRequest(CHAT, {"model": "m", "prompt": [1, 2], "logit_bias": {"5": 1.5}})
    assert json.loads(request.body()) == request.fields
    assert json.loads(request.body(model="own")) == request.fields | {"model": "own"}
    assert request.fields["model"] == "m"
