"""Requests of Messages and Responses at engines that refuse them as they are, in vLLM's words."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web
from scripted_member import Answer, Member, listening
from support.gateway import MODEL, SimSettings, gateway

MESSAGES, RESPONSES = "/v1/messages", "/v1/responses"
ALTERNATE = "Conversation roles must alternate user/assistant/user/assistant/..."


def refused(message: str) -> web.Response:
    return web.json_response(
        {"error": {"message": message, "type": "BadRequestError", "code": 400}}, status=400
    )


def template(*, takes_system: bool = True) -> Answer:
    """A model whose chat template raises as those of Gemma, Mistral and Qwen do."""

    async def answer(request: web.Request) -> web.StreamResponse:
        roles = [message["role"] for message in (await request.json())["messages"]]
        if "system" in roles and not takes_system:
            return refused("System role not supported")
        if "system" in roles[1:]:
            return refused("System message must be at the beginning.")
        turns = [role for role in roles if role in ("user", "assistant")]
        if any(role == turns[place] for place, role in enumerate(turns[1:])):
            return refused(ALTERNATE)
        return web.json_response({"model": "x", "choices": [{"message": {"content": "yes"}}]})

    return answer


def codex(*texts: tuple[str, str]) -> dict[str, Any]:
    items = [{"role": role, "content": text} for role, text in texts]
    return {"model": MODEL, "input": items, "store": False}


FIRST = (("developer", "Be kind."), ("user", "The folder is /a."), ("user", "List it."))
LATER = (("assistant", "a.txt"), ("developer", "Be brief."), ("user", "Read it."))


async def test_neighbours_are_joined_where_a_template_wants_turns_to_alternate() -> None:
    member = Member(template())
    async with listening(member), gateway(others=[member.upstream()]) as running:
        answers = [await running.send(codex(*turns), RESPONSES) for turns in (FIRST, FIRST + LATER)]
        chat = await running.send({"model": MODEL, "messages": codex(*FIRST[1:])["input"]})
    assert [answer.status for answer in answers] == [200, 200]
    _, first, _, later, _ = (each.fields["messages"] for each in member.seen)
    assert first == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "The folder is /a.\n\nList it."},
    ]
    assert later == [
        *first,
        {"role": "assistant", "content": "a.txt"},
        {"role": "user", "content": "<system-reminder>\nBe brief.\n</system-reminder>\n\nRead it."},
    ]
    assert (chat.status, chat.error["message"]) == (400, ALTERNATE)  # what a chat client wrote is its own


@pytest.mark.parametrize("path", [MESSAGES, RESPONSES])
async def test_a_template_without_system_messages_reads_them_as_the_users(path: str) -> None:
    member = Member(template(takes_system=False))
    turns = [{"role": "user", "content": "hi"}]
    asked: dict[str, Any] = {"model": MODEL, "system": "Be kind.", "messages": turns, "max_tokens": 9}
    if path == RESPONSES:
        asked = {"model": MODEL, "instructions": "Be kind.", "input": turns}
    async with listening(member), gateway(others=[member.upstream()]) as running:
        answer = await running.send(asked, path)
    assert answer.status == 200
    assert member.seen[-1].fields["messages"] == [{"role": "user", "content": "Be kind.\n\nhi"}]


async def test_images_keep_their_places_when_neighbours_are_joined() -> None:
    member = Member(template())
    picture = {"type": "input_image", "image_url": "https://example.com/a.png"}
    asked = codex(("user", "Look:"))
    asked["input"].append({"role": "user", "content": [picture]})
    async with listening(member), gateway(others=[member.upstream()]) as running:
        assert (await running.send(asked, RESPONSES)).status == 200
    (message,) = member.seen[-1].fields["messages"]
    assert [part["type"] for part in message["content"]] == ["text", "image_url"]


@pytest.mark.parametrize(("effort", "known"), [("max", "high"), ("minimal", "low")])
async def test_an_effort_that_a_model_lacks_becomes_the_nearest(effort: str, known: str) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        asked = (await request.json()).get("reasoning_effort")
        if asked not in ("low", "medium", "high"):
            return refused(
                f"reasoning_effort={asked!r} is not supported by Harmony. "
                "Supported values are: high, medium, low."
            )
        return web.json_response({"model": "x", "choices": [{"message": {"content": "yes"}}]})

    member = Member(answer)
    async with listening(member), gateway(others=[member.upstream(kind="vllm")]) as running:
        asked = codex(("user", "hi")) | {"reasoning": {"effort": effort}}
        assert (await running.send(asked, RESPONSES)).status == 200
    assert member.seen[-1].fields["reasoning_effort"] == known


async def test_no_two_answers_have_one_id_whatever_the_requests_id_is() -> None:
    async with gateway(SimSettings(itl_ms=0, tokens=2)) as running:
        asked = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}
        ids = {(await running.send(asked, MESSAGES, {"x-request-id": "always"})).json["id"] for _ in range(3)}
    assert len(ids) == 3


@pytest.mark.parametrize(("path", "named"), [(MESSAGES, "messages"), (RESPONSES, "input")])
async def test_what_is_wrong_with_the_chat_is_said_of_the_clients_own_field(path: str, named: str) -> None:
    """The system text is a message of the chat, so its messages have other numbers."""
    data = "data:image/png;base64,AAAA"
    source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    parts: list[dict[str, Any]] = [{"type": "image", "source": source}]
    asked: dict[str, Any] = {"system": "s", "max_tokens": 9}
    if path == RESPONSES:
        parts, asked = [{"type": "input_image", "image_url": data}], {"instructions": "s"}
    turns = [{"role": "user", "content": parts}]
    async with gateway() as running:
        answer = await running.send({"model": MODEL, named: turns, **asked}, path)
    assert answer.status == 400
    said = answer.error["message"]
    assert f"`{named}`" in said
    assert "[1]" not in said


async def test_what_no_form_mends_is_refused_once() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return refused(ALTERNATE)

    member = Member(answer)
    async with listening(member), gateway(others=[member.upstream()]) as running:
        given = await running.send(codex(("user", "hi")), RESPONSES)
    assert (given.status, given.error["message"]) == (400, ALTERNATE)
    assert len(member.seen) == 1


async def test_a_prompt_above_the_context_has_the_code_that_agents_look_for() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return refused(
            "This model's maximum context length is 100 tokens. However, your prompt contains 200 input "
            "tokens."
        )

    member = Member(answer)
    async with listening(member), gateway(others=[member.upstream()]) as running:
        given = await running.send(codex(("user", "hi")) | {"max_output_tokens": 50}, RESPONSES)
    assert (given.status, given.error["code"], given.error["param"]) == (
        400,
        "context_length_exceeded",
        "input",
    )
