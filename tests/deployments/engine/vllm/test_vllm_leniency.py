"""The gateway reads a value as vLLM's own protocol does: takes no more, and gives it no other meaning."""

from __future__ import annotations

import json
from typing import Any

import pytest

from serve_app.openai.leniency import PLAIN, PLAIN_RESPONSES, Conversions, plainly

OF_EMBEDDINGS = {"dimensions"}

VALUES: list[Any] = [
    *(5, 5.0, 5.5, 1, 0, 1.0, 0.0, 2, -1, -1.0, 1e300, 1e22, True, False, [], {}),
    *("5", "5.0", " 5 ", "+5", "05", "5_0", "5.", "5.5", ".5", "1e1", "0x5", "-1", "1", "0", "", "١"),
    *("true", "True", "yes", "on", "t", "y", "off", "no", "f", "F", "maybe"),
]
NOT_FINITE = ("nan", "inf")
"""vLLM's protocol takes them; its sampler does not."""


@pytest.mark.filterwarnings("ignore:max_tokens is deprecated:DeprecationWarning")
@pytest.mark.parametrize("name", sorted(PLAIN.keys() - OF_EMBEDDINGS))
def test_vllm_reads_each_value_of_a_chat_the_same_way(name: str) -> None:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    read_alike(name, PLAIN, ChatCompletionRequest, {"messages": [{"role": "user", "content": "hi"}]})


@pytest.mark.parametrize("name", sorted(PLAIN_RESPONSES))
def test_vllm_reads_each_value_of_a_response_the_same_way(name: str) -> None:
    from vllm.entrypoints.openai.responses.protocol import ResponsesRequest

    read_alike(name, PLAIN_RESPONSES, ResponsesRequest, {"input": "hi"})


def read_alike(name: str, conversions: Conversions, protocol: Any, rest: dict[str, Any]) -> None:
    for value in VALUES:
        ours = plainly({name: value}, conversions)[name]
        try:
            theirs = getattr(protocol.model_validate_json(json.dumps({**rest, name: value})), name)
        except ValueError:
            assert ours is value, f"vLLM does not take {value!r}"
        else:
            assert (ours, isinstance(ours, bool)) == (theirs, isinstance(theirs, bool)), f"of {value!r}"


@pytest.mark.parametrize("value", NOT_FINITE)
def test_what_its_sampler_does_not_take_is_left_alone(value: str) -> None:
    assert plainly({"temperature": value}) == {"temperature": value}
