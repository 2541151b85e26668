"""The scripted engine's text can be continued, and its answers have vLLM's form."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from sim_engine.text import EOS, detokenise
from support.sim import (
    FAST,
    TEXT,
    Sim,
    decoded,
    events,
    running,
    streamed,
)

from serve_app.openai import replay, sse
from serve_app.openai.answers import Answer, Usage
from serve_app.openai.requests import Endpoint


@pytest.mark.parametrize("said", [0, 1, 7, 11])
@pytest.mark.parametrize("stop_share", [0.0, 0.05])
@pytest.mark.parametrize("max_tokens", [10, None])
async def test_a_continuation_is_the_rest_of_the_undisturbed_answer(
    said: int, stop_share: float, max_tokens: int | None
) -> None:
    async with running(replace(FAST, stop_share=stop_share)) as sim:
        asked = {"stream": True, "return_token_ids": True}
        sample = await sim.chat("What is the sea?", max_tokens=max_tokens, **asked)
        whole, prompt_ids = streamed(sample), events(sample)[0]["prompt_token_ids"]
        said = min(said, len(whole.ids) - 1)
        left = None if max_tokens is None else max_tokens - said
        prompt = prompt_ids + whole.ids[:said]
        rest = streamed(await sim.send(TEXT, prompt=prompt, max_tokens=left, **asked))
    assert whole.ids[:said] + rest.ids == whole.ids
    assert detokenise(whole.ids[:said]) + rest.text == whole.text
    assert rest.finish_reason == whole.finish_reason


async def test_a_text_can_be_continued_as_text(sim: Sim) -> None:
    whole = decoded(await sim.send(TEXT, prompt="The sea is"))["choices"][0]["text"]
    start = whole[: whole.index(" ", 20)]
    rest = decoded(await sim.send(TEXT, prompt="The sea is" + start))["choices"][0]["text"]
    assert start + rest == whole


async def test_equal_seeds_say_the_same_and_other_seeds_do_not() -> None:
    said = []
    for seed in (1, 1, 2):
        async with running(replace(FAST, seed=seed)) as sim:
            said.append(decoded(await sim.chat("Hello"))["choices"][0]["message"]["content"])
    assert said[0] == said[1] != said[2]


async def test_an_answer_ends_by_itself_with_a_token_that_has_no_text(sim: Sim) -> None:
    answer = streamed(await sim.chat("Hello", stream=True, return_token_ids=True))
    assert (len(answer.ids), answer.ids[-1], answer.finish_reason) == (FAST.tokens + 1, EOS, "stop")
    assert len(answer.text.split()) == FAST.tokens


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
async def test_max_tokens_cuts_an_answer(sim: Sim, name: str) -> None:
    answer = decoded(await sim.chat("Hello", **{name: 5}))
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 5


async def test_ignore_eos_goes_on_to_max_tokens(sim: Sim) -> None:
    answer = decoded(await sim.chat("Hello", ignore_eos=True, max_tokens=20))
    assert answer["usage"]["completion_tokens"] == 20


async def test_a_streamed_answer_says_what_a_whole_one_says(sim: Sim) -> None:
    whole = decoded(await sim.chat("Hello"))["choices"][0]["message"]["content"]
    assert streamed(await sim.chat("Hello", stream=True)).text == whole


@pytest.mark.parametrize("endpoint", Endpoint)
async def test_answers_have_vllms_keys_in_vllms_order(sim: Sim, endpoint: Endpoint) -> None:
    values: dict[str, Any] = {"prompt": "Hello", "messages": [{"role": "user", "content": "Hello"}]}
    model = Answer("sim", " a b c", Usage(1, 2, 3), system_fingerprint="x")
    usage = {"stream": True, "stream_options": {"include_usage": True}}
    live = events(await sim.send(endpoint.value, **values, **usage))
    replayed = b"".join(replay.as_stream(model, endpoint, "1", 1, with_usage=True))
    expected = [json.loads(data) for data in sse.iter_data(replayed) if data != sse.DONE]
    expected[-2]["choices"][0].pop("delta", None)  # the last token's text, or none after a tool parser
    live[-2]["choices"][0].pop("delta", None)
    for position in (0, 1, -2, -1):  # role or first token, token, last token, usage
        assert shape(live[position]) == shape(expected[position]), position
    whole = decoded(await sim.send(endpoint.value, **values))
    assert shape(whole) == shape(json.loads(replay.as_json(model, endpoint, "1", 1)))


def shape(value: Any) -> Any:
    """Keys in order, with null, text and number told apart."""
    if isinstance(value, dict):
        return [(key, shape(inner)) for key, inner in value.items()]
    return [shape(inner) for inner in value] if isinstance(value, list) else type(value).__name__


async def test_usage_comes_only_when_asked_for(sim: Sim) -> None:
    assert all(chunk["choices"] for chunk in events(await sim.chat("Hello", stream=True)))
