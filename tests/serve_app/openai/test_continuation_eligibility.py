"""Only an answer that another engine can continue as if nothing had happened is continued."""

from __future__ import annotations

from typing import Any

import pytest
from samples import CHAT, chat_request, completion_request, user

from serve_app.openai.continuation import chat_obstacle, obstacle, resumable
from serve_app.openai.requests import Endpoint, ParsedRequest

TOOLS = [{"type": "function", "function": {"name": "f"}}]
IMAGE = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}

HARMLESS: dict[str, Any] = {
    "nothing else": {},
    "sampling": {"temperature": 0.7, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "repetition_penalty": 1.1},
    "limits": {"max_tokens": 5, "min_tokens": 2},
    "ends": {"stop_token_ids": [5], "ignore_eos": True, "include_stop_str_in_output": True},
    "a stop of one character": {"stop": "\n"},
    "stops of one character": {"stop": ["\n", "。", "👍"]},
    "allowed tokens": {"logit_bias": {"5": 1}, "allowed_token_ids": [5, 6]},
    "usage": {"stream_options": {"include_usage": True}},
    "a seed that nothing is drawn with": {"seed": 5, "temperature": 0},
    "what shaped the prompt": {"add_special_tokens": True, "truncate_prompt_tokens": 5},
    "a salt and a priority": {"cache_salt": "s", "priority": 1},
    "defaults": {
        "n": 1,
        "best_of": 1,
        "echo": False,
        "use_beam_search": False,
        "presence_penalty": 0.0,
        "frequency_penalty": 0,
        "response_format": {"type": "text"},
        "return_token_ids": False,
        "spaces_between_special_tokens": True,
    },
    "nulls and empty lists": {
        "n": None,
        "logprobs": None,
        "tools": None,
        "bad_words": [],
        "stop": [],
        "seed": None,
        "prompt_logprobs": None,
        "stream_options": None,
        "novelty": None,
    },
}

CHAT_HARMLESS: dict[str, Any] = {
    "no log-probabilities": {"logprobs": False, "top_logprobs": 0},
    "tools that are not to be called": {"tools": TOOLS, "tool_choice": "none"},
    "what shaped the prompt": {
        "chat_template_kwargs": {"enable_thinking": False},
        "add_generation_prompt": False,
        "continue_final_message": True,
        "reasoning_effort": "low",
    },
    "a limit by its newer name": {"max_completion_tokens": 5},
    "parts of text": {"messages": [user([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])]},
    "a tool's word": {
        "messages": [
            {"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]},
            {"role": "tool", "tool_call_id": "c", "content": "5"},
        ]
    },
}

OBSTACLES: dict[str, Any] = {
    "not streamed": {"stream": False},
    "streaming not said": {"stream": None},
    "several answers": {"n": 2},
    "the best of several": {"best_of": 2},
    "beam search": {"use_beam_search": True, "n": 1},
    "echo": {"echo": True},
    "a suffix": {"suffix": "end"},
    "log-probabilities": {"logprobs": 1},
    "log-probabilities of the prompt": {"prompt_logprobs": 1},
    "presence penalty": {"presence_penalty": 0.1},
    "frequency penalty": {"frequency_penalty": -0.1},
    "JSON": {"response_format": {"type": "json_object"}},
    "a schema": {"response_format": {"type": "json_schema", "json_schema": {}}},
    "a grammar": {"structured_outputs": {"choice": ["a"]}},
    "a grammar by an older name": {"guided_regex": "a*"},
    "a seed": {"seed": 5, "temperature": 0.7},
    "a seed, temperature unknown": {"seed": 0},
    "a stop of two characters": {"stop": "\n\n"},
    "one stop of two characters": {"stop": [".", "ab"]},
    "bad words": {"bad_words": ["no"]},
    "a budget for thoughts": {"thinking_token_budget": 5},
    "an end to repetition": {"repetition_detection": {"max_pattern_size": 5}},
    "special tokens written together": {"spaces_between_special_tokens": False},
    "tokens asked for": {"return_token_ids": True},
    "usage with every chunk": {"stream_options": {"include_usage": True, "continuous_usage_stats": True}},
    "an unknown field": {"novelty": 0},
    "a transfer of the KV cache": {"kv_transfer_params": {"a": 1}},
}

CHAT_OBSTACLES: dict[str, Any] = {
    "log-probabilities": {"logprobs": True},
    "tools": {"tools": TOOLS},
    "tools at will": {"tools": TOOLS, "tool_choice": "auto"},
    "a tool to be called": {"tools": TOOLS, "tool_choice": "required"},
    "hidden reasoning": {"include_reasoning": False},
    "the prompt's text": {"return_prompt_text": True},
    "an image": {"messages": [user([{"type": "text", "text": "what?"}, IMAGE])]},
    "an image further up": {"messages": [user([IMAGE]), user("what?")]},
    "a sound": {"messages": [user([{"type": "input_audio", "input_audio": {}}])]},
    "a part without a kind": {"messages": [user([{"text": "a"}])]},
}

PROMPTS = {
    "several texts": ["a", "b"],
    "a list of one text": ["a"],
    "several lists of tokens": [[1], [2]],
    "no tokens": [],
    "no prompt": None,
}


def make_request(endpoint: Endpoint, fields: dict[str, Any]) -> ParsedRequest:
    build = chat_request if endpoint is CHAT else completion_request
    return build(**({"stream": True} | fields))


@pytest.mark.parametrize("fields", HARMLESS.values(), ids=HARMLESS)
@pytest.mark.parametrize("endpoint", Endpoint)
def test_what_an_engine_need_not_remember_is_no_obstacle(endpoint: Endpoint, fields: dict[str, Any]) -> None:
    assert obstacle(make_request(endpoint, fields)) is None


@pytest.mark.parametrize("fields", CHAT_HARMLESS.values(), ids=CHAT_HARMLESS)
def test_what_shaped_a_chats_prompt_is_no_obstacle(fields: dict[str, Any]) -> None:
    assert obstacle(make_request(CHAT, fields)) is None


@pytest.mark.parametrize("prompt", ["a text", [1, 2, 3]])
def test_one_prompt_is_no_obstacle(prompt: Any) -> None:
    assert obstacle(completion_request(prompt, stream=True)) is None


@pytest.mark.parametrize("fields", OBSTACLES.values(), ids=OBSTACLES)
@pytest.mark.parametrize("endpoint", Endpoint)
def test_what_an_engine_would_have_to_remember_is_an_obstacle(
    endpoint: Endpoint, fields: dict[str, Any]
) -> None:
    assert obstacle(make_request(endpoint, fields))


@pytest.mark.parametrize("fields", CHAT_OBSTACLES.values(), ids=CHAT_OBSTACLES)
def test_more_than_text_in_a_chat_is_an_obstacle(fields: dict[str, Any]) -> None:
    assert obstacle(make_request(CHAT, fields))


@pytest.mark.parametrize("prompt", PROMPTS.values(), ids=PROMPTS)
def test_anything_but_one_prompt_is_an_obstacle(prompt: Any) -> None:
    assert obstacle(completion_request(prompt, stream=True, prompt_embeds="AA==" if not prompt else None))


@pytest.mark.parametrize("logprobs", [False, 0])
def test_a_text_completion_has_no_word_for_no_log_probabilities(logprobs: Any) -> None:
    """0 asks for the log-probability of each token, and `false` is 0."""
    assert obstacle(completion_request(stream=True, logprobs=logprobs)) == "`logprobs` is set"


def test_the_reason_names_the_field() -> None:
    assert obstacle(make_request(CHAT, {"n": 2})) == "`n` is set"
    assert obstacle(make_request(CHAT, {"guided_json": {}})) == "`guided_json` is set"
    options = {"include_usage": True, "continuous_usage_stats": True}
    assert obstacle(make_request(CHAT, {"stream_options": options})) == (
        "`stream_options.continuous_usage_stats` is set"
    )


# ---- as the same chat ----

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
IMAGE = [
    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]}
]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"tools": [TOOL]},
        {"tools": [TOOL], "tool_choice": "auto"},
        {"tools": [TOOL], "tool_choice": "required"},
        {"stop": ["a long text"]},
        {"messages": IMAGE},
        {"seed": 1, "temperature": 0},
    ],
    ids=str,
)
def test_an_engine_that_is_told_the_tokens_sees_the_whole_chat(fields: dict[str, Any]) -> None:
    request = make_request(CHAT, fields)
    assert chat_obstacle(request) is None
    found = resumable(request)
    assert found is not None
    assert (found.as_chat, found.as_text) == (True, obstacle(request) is None)


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 2},
        {"logprobs": True},
        {"presence_penalty": 1},
        {"seed": 1, "temperature": 1},
        {"response_format": {"type": "json_object"}},
        {"include_reasoning": False},
        {"unknown": 1},
        {"stream_options": {"continuous_usage_stats": True}},
    ],
    ids=str,
)
def test_state_that_no_token_shows_is_an_obstacle_for_a_chat(fields: dict[str, Any]) -> None:
    assert chat_obstacle(make_request(CHAT, fields))
    assert resumable(make_request(CHAT, fields)) is None


def test_a_completion_goes_on_as_text_only() -> None:
    found = resumable(completion_request(stream=True))
    assert found is not None
    assert (found.as_text, found.as_chat) == (True, False)
