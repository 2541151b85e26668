"""What an engine elsewhere may prefill."""

from __future__ import annotations

from typing import Any

import pytest

from serve_app.openai.prefill import prefill_request
from serve_app.openai.requests import Endpoint

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def test_the_prompt_is_asked_for_and_nothing_about_the_answer() -> None:
    answer = {
        "min_tokens": 4,
        "logprobs": True,
        "top_logprobs": 2,
        "kv_transfer_params": {"remote_host": "x"},
    }
    asked = prefill_request(Endpoint.CHAT, CHAT | answer | {"tools": [], "temperature": 0.5})
    assert asked == CHAT | {"tools": [], "temperature": 0.5}


@pytest.mark.parametrize("prompt", ["once upon a time", [1, 2, 3]])
def test_a_text_and_its_token_ids_are_one_prompt(prompt: Any) -> None:
    body = {"model": "m", "prompt": prompt}
    assert prefill_request(Endpoint.COMPLETIONS, body) == body


@pytest.mark.parametrize("prompt", [None, [], ["a", "b"], [[1], [2]], {"a": 1}])
def test_several_prompts_or_none_stay_where_they_are(prompt: Any) -> None:
    assert prefill_request(Endpoint.COMPLETIONS, {"model": "m", "prompt": prompt}) is None


@pytest.mark.parametrize(
    "field", [{"n": 2}, {"best_of": 3}, {"use_beam_search": True}, {"echo": True}, {"prompt_logprobs": 0}]
)
def test_what_needs_the_prompt_itself_or_several_answers_stays(field: dict[str, Any]) -> None:
    assert prefill_request(Endpoint.CHAT, CHAT | field) is None


@pytest.mark.parametrize("field", [{"n": 1}, {"n": None}, {"echo": False}])
def test_defaults_that_are_named_change_nothing(field: dict[str, Any]) -> None:
    assert prefill_request(Endpoint.CHAT, CHAT | field) == CHAT | field
