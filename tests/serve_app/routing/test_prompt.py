"""Prompts that begin alike have blocks that begin alike, and nothing in a prompt makes it fail."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from samples import TEXTS, chat_request, completion_request, prompt_blocks, user

from serve_app.openai.requests import ParsedRequest
from serve_app.routing.prompt import (
    BLOCK_BYTES,
    IMAGE_TOKENS,
    MOST_IMAGE_TOKENS,
    TOKENS_PER_BLOCK,
    estimated_tokens,
    relayed_tokens,
)

LONG = "once upon a time " * 200
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"text": "x" * BLOCK_BYTES}}}


def shared(one: ParsedRequest, other: ParsedRequest) -> int:
    """Blocks that two prompts have in common from the beginning on."""
    pairs = zip(prompt_blocks(one), prompt_blocks(other), strict=False)
    return next((depth for depth, (a, b) in enumerate(pairs) if a != b), min(map(blocks, (one, other))))


def blocks(request: ParsedRequest) -> int:
    return len(prompt_blocks(request))


def image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


@pytest.mark.parametrize("make", [chat_request, completion_request])
def test_equal_prompts_have_equal_blocks_whatever_else_is_asked(make: Any) -> None:
    assert prompt_blocks(make(LONG)) == prompt_blocks(make(LONG, temperature=0.5, max_tokens=3, stream=True))
    assert blocks(make(LONG)) == len(LONG.encode()) // BLOCK_BYTES


def test_a_conversation_that_goes_on_keeps_its_blocks() -> None:
    first = chat_request(messages=[user(LONG)])
    later = chat_request(messages=[user(LONG), {"role": "assistant", "content": LONG}, user("and then?")])
    assert shared(first, later) == blocks(first)
    assert blocks(later) > blocks(first)


def test_all_that_follows_a_difference_differs() -> None:
    one, other = completion_request("a" + LONG), completion_request("b" + LONG)
    assert not set(prompt_blocks(one)) & set(prompt_blocks(other))


def test_another_adapter_shares_nothing() -> None:
    one, other = chat_request(LONG), chat_request(LONG, model="an-adapter")
    assert blocks(one)
    assert not set(prompt_blocks(one)) & set(prompt_blocks(other))


def test_a_difference_costs_only_what_follows_it() -> None:
    one, other = completion_request(LONG + "a" * 2000), completion_request(LONG + "b" * 2000)
    assert shared(one, other) == len(LONG) // BLOCK_BYTES


def test_the_role_is_part_of_the_prompt() -> None:
    system = chat_request(messages=[{"role": "system", "content": LONG}])
    assert shared(chat_request(messages=[user(LONG)]), system) == 0


def test_text_parts_are_the_text() -> None:
    parts = [{"type": "text", "text": LONG[:100]}, {"type": "text", "text": LONG[100:]}]
    assert prompt_blocks(chat_request(parts)) == prompt_blocks(chat_request(LONG))


def test_tools_come_first() -> None:
    one, other = (chat_request(text + LONG, tools=[TOOL]) for text in "ab")
    assert 0 < shared(one, other) < blocks(one)
    assert shared(one, chat_request("a" + LONG)) == 0


CALL = {"id": "c1", "type": "function", "function": {"name": "write", "arguments": f'{{"text": "{LONG}"}}'}}


@pytest.mark.parametrize(
    "beside",
    [
        {"tool_calls": [CALL]},
        {"function_call": CALL["function"]},
        {"reasoning": LONG},
        {"content": [{"type": "output_text", "text": LONG}]},
        {"content": [{"type": "thinking", "thinking": LONG}]},
    ],
    ids=lambda beside: next(iter(beside)),
)
def test_all_that_a_message_says_is_part_of_the_prompt(beside: dict[str, Any]) -> None:
    turn = {"role": "assistant", "content": None, **beside}
    short = chat_request(messages=[user("hi"), {"role": "assistant", "content": ""}])
    tokens = estimated_tokens(chat_request(messages=[user("hi"), turn])) - estimated_tokens(short)
    assert tokens == pytest.approx(len(LONG) / 4, rel=0.05)


@pytest.mark.parametrize("field", ["tools", "documents", "chat_template_kwargs"])
def test_what_templates_write_beside_the_messages_is_part_of_the_prompt(field: str) -> None:
    written = chat_request("hi", **{field: [{"text": LONG}]})
    assert estimated_tokens(written) - estimated_tokens(chat_request("hi")) > len(LONG) / 4


def test_a_switch_of_the_template_moves_nothing_before_it() -> None:
    one, other = (chat_request(LONG, chat_template_kwargs={"enable_thinking": on}) for on in (True, False))
    assert shared(one, other) == len(LONG) // BLOCK_BYTES


@pytest.mark.parametrize("more", [{"": "x"}, {"text": "x"}, {"type": "text", "text": "x", "uuid": "u"}])
def test_no_other_field_hides_a_picture(more: dict[str, Any]) -> None:
    assert estimated_tokens(chat_request([image("https://a/1.png") | more])) >= IMAGE_TOKENS


def test_a_conversation_with_calls_that_goes_on_keeps_its_blocks() -> None:
    called = [user("hi"), {"role": "assistant", "content": None, "tool_calls": [CALL]}]
    result = {"role": "tool", "tool_call_id": "c1", "content": "done"}
    first, later = chat_request(messages=called), chat_request(messages=[*called, result, user("and then?")])
    assert shared(first, later) == blocks(first) > 0


def test_images_are_told_apart_by_where_they_are_or_what_they_hold() -> None:
    def asked(url: str) -> ParsedRequest:
        return chat_request([image(url), {"type": "text", "text": LONG}])

    data = "data:image/png;base64,"
    assert prompt_blocks(asked(data + "AAAA")) == prompt_blocks(asked(data + "AAAA"))
    assert shared(asked(data + "AAAA"), asked(data + "AAAB")) == 0
    assert shared(asked("https://a/1.png"), asked("https://a/2.png")) == 0


def test_an_image_counts_by_the_size_of_its_data() -> None:
    least, most = (4, IMAGE_TOKENS), (9_000_000, MOST_IMAGE_TOKENS)
    for size, tokens in (least, (100_000, IMAGE_TOKENS), (3_400_000, 10_000), most):
        asked = chat_request([image(f"data:image/png;base64,{'A' * size}")])
        assert estimated_tokens(asked) == pytest.approx(tokens, rel=0.01)


def test_sound_and_rows_of_embeddings_count_by_the_size_of_their_data() -> None:
    speech = {"type": "input_audio", "input_audio": {"data": "A" * 3_400_000, "format": "wav"}}
    assert estimated_tokens(chat_request([speech])) == pytest.approx(10_000, rel=0.01)
    rows = "A" * 1365 * 400
    for embeds in (rows, [rows[: len(rows) // 2]] * 2):
        assert estimated_tokens(completion_request(None, prompt_embeds=embeds)) == pytest.approx(400, abs=2)


def test_a_text_with_a_picture_s_name_is_text_all_the_same() -> None:
    part = {"type": "text", "text": LONG, "uuid": "u"}
    assert estimated_tokens(chat_request([part])) > len(LONG) / 4


def test_token_ids_are_a_prompt() -> None:
    ids = list(range(1000))
    assert estimated_tokens(completion_request(ids)) == 1000
    assert shared(completion_request(ids), completion_request([*ids, 5])) == 1000 // TOKENS_PER_BLOCK
    assert shared(completion_request([7, *ids]), completion_request(ids)) == 0


def test_a_batch_is_one_prompt_after_the_other() -> None:
    assert shared(completion_request([LONG, "x"]), completion_request([LONG, "y"])) > 0
    assert estimated_tokens(completion_request([[1, 2, 3], [4, 5]])) == pytest.approx(5, abs=1)


def test_tokens_are_estimated_from_the_text() -> None:
    assert estimated_tokens(completion_request(LONG)) == len(LONG) / 4
    assert estimated_tokens(completion_request("東京都" * 100)) == 225
    assert estimated_tokens(chat_request(LONG)) == pytest.approx(len(LONG) / 4, rel=0.01)


def nested(depth: int) -> Any:
    return msgspec.json.decode("[" * depth + "]" * depth)


@pytest.mark.parametrize(
    "request_",
    [
        *(chat_request(text) for text in TEXTS),
        *(completion_request(text) for text in TEXTS),
        chat_request("hi", messages=[{"role": "assistant", "content": None}, {"role": "user"}]),
        chat_request([]),
        chat_request([{}]),
        chat_request([{"type": "text"}, {"type": "text", "text": 5}, {"type": 3}, {"text": "no type"}]),
        chat_request([{"type": "refusal", "refusal": "no"}, {"type": "refusal", "text": "no"}]),
        chat_request([{"type": "image_url", "image_url": None}]),
        chat_request("hi", tools="none"),
        chat_request("hi", tools={}),
        chat_request("hi", tools=7),
        completion_request([]),
        completion_request([[]]),
        completion_request([-1, 2**40, 2**70]),
        completion_request([1, "two", 3.0, None, [4], {}]),
        completion_request(["one", 2, None, [3, "x"]]),
        completion_request([None]),
        completion_request([{"a": 1}]),
        completion_request(None, prompt_embeds="AAAA"),
        completion_request(None, prompt_embeds=[1, 2]),
    ],
)
def test_nothing_in_a_prompt_makes_it_fail(request_: ParsedRequest) -> None:
    assert prompt_blocks(request_) == prompt_blocks(request_)
    assert estimated_tokens(request_) >= 0


@pytest.mark.parametrize("depth", [500, 960, 975])
def test_deep_nesting_does_not_make_it_fail(depth: int) -> None:
    def deeper(frames: int, request: ParsedRequest) -> tuple[int, ...]:
        return deeper(frames - 1, request) if frames else prompt_blocks(request)

    for request in (chat_request("hi", tools=nested(500)), completion_request(nested(500))):
        assert isinstance(deeper(depth - 500, request), tuple)


@pytest.mark.parametrize(
    ("begins", "between", "ends"),
    [
        (b'{"images":["', b'" , "', b'"]}'),
        (b'[{"image_url": {"url" : "', b'"}},{"image_url":{"url":"', b'"}}]'),
        (b'[{"image":"', b'"},{"image_url":"', b'"}]'),
    ],
)
def test_a_picture_in_a_relayed_body_counts_by_its_size(begins: bytes, between: bytes, ends: bytes) -> None:
    large = b"data:image/png;base64," + b"A" * 1_000_000
    body = begins + large + between + b"data:image\\/jpeg;base64,B" + ends
    assert relayed_tokens(body) == pytest.approx(1_000_000 / 340 + IMAGE_TOKENS, abs=20)


def test_a_relayed_text_that_begins_like_a_picture_counts_as_text() -> None:
    body = b'{"model":"m","input":"hello"}'
    assert relayed_tokens(body) == len(body) / 4
    text = b'{"input":["data:image/png;base64,' + b"A" * 100_000 + b'"],"query":"data:image/png;base64,AAAA"}'
    assert relayed_tokens(text) == len(text) / 4
