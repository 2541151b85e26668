"""What agents get wrong, in each dialect's own words and shape. Every request allows a second: one that hangs
would be a 504 of its deadline."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from scripted_member import Answer, Member, listening
from support.gateway import FAST, MODEL, Answered, Running, gateway
from support.graph import CHAT, eventually
from support.responses import responses_handle

from serve_app.media.addresses import is_public

MESSAGES, RESPONSES = "/v1/messages", "/v1/responses"
IN_A_SECOND = {"x-request-timeout-ms": "1000"}
INSIDE = "http://169.254.169.254/latest/meta-data"
HI = [{"role": "user", "content": "hi"}]
LOOK = {"type": "text", "text": "Look."}


def chat(*parts: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(parts)}]}


def message(*parts: Any) -> dict[str, Any]:
    return {"max_tokens": 4, **chat(*parts)}


def response(*items: Any) -> dict[str, Any]:
    return {"input": list(items)}


WRONG: dict[str, tuple[str, dict[str, Any], str]] = {
    "Messages: a block of an unknown type": (MESSAGES, message({"type": "hologram"}), "hologram"),
    "Messages: a result without its call": (
        MESSAGES,
        message({"type": "tool_result", "tool_use_id": "toolu_9", "content": "x"}),
        "toolu_9",
    ),
    "Messages: an inside address": (
        MESSAGES,
        message(LOOK, {"type": "image", "source": {"type": "url", "url": INSIDE}}),
        "cannot be fetched",
    ),
    "Responses: an item of an unknown type": (RESPONSES, response({"type": "hologram"}), "hologram"),
    "Responses: a result without its call": (
        RESPONSES,
        response({"type": "function_call_output", "call_id": "call_9", "output": "x"}),
        "call_9",
    ),
    "Responses: an inside address": (
        RESPONSES,
        response({"role": "user", "content": [{"type": "input_image", "image_url": INSIDE}]}),
        "cannot be fetched",
    ),
    "chat: an inside address": (
        CHAT,
        chat(LOOK, {"type": "image_url", "image_url": {"url": INSIDE}}),
        "cannot be fetched",
    ),
    "chat: a part that is no object": (CHAT, chat("look"), "messages[0].content[0]"),
}


@asynccontextmanager
async def answering(folder: Path, **args: Any) -> AsyncIterator[Running]:
    """A gateway with a store of responses that fetches images from public addresses only."""
    settings = args.pop("responses", {})
    async with responses_handle(folder, **settings) as store:
        handles = {"responses": store, "is_public": is_public}
        media = {"allowed_domains": ["*"]}
        async with gateway(FAST, handles=handles, responses=settings, media=media, **args) as running:
            yield running


def said(path: str, answer: Answered) -> str:
    """The message of an error, which has the shape of the path's dialect."""
    error = answer.json["error"]
    if path == MESSAGES:
        assert answer.json["type"] == "error"
        assert answer.json["request_id"] == answer.headers["request-id"]
        assert error.keys() == {"type", "message"}
    else:
        assert {"message", "type", "param", "code"} <= error.keys()
    return str(error["message"])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", WRONG)
async def test_it_is_refused_in_the_dialects_shape(tmp_path: Path, name: str, stream: bool) -> None:
    path, fields, word = WRONG[name]
    async with answering(tmp_path) as running:
        answer = await running.send({"model": MODEL, "stream": stream, **fields}, path, headers=IN_A_SECOND)
        assert answer.status == 400, answer.body
        assert word in f"{said(path, answer)} {answer.json}"
        assert running.requests() == [0]


@pytest.mark.parametrize("stream", [False, True])
async def test_an_unknown_response_and_another_tenants_are_the_same_404(tmp_path: Path, stream: bool) -> None:
    async with answering(tmp_path, tenants=["a", "b"]) as running:
        asked = {"model": MODEL, "input": "hi", "stream": stream}
        made = await running.send({"model": MODEL, "input": "hi"}, RESPONSES, headers=running.headers("a"))
        theirs = made.json["id"]
        answers = []
        for name in (theirs, "resp_" + "0" * 32):
            fields = {**asked, "previous_response_id": name}
            headers = {**running.headers("b"), **IN_A_SECOND}
            answer = await running.send(fields, RESPONSES, headers=headers)
            assert answer.status == 404
            answers.append(said(RESPONSES, answer).replace(name, "…"))
        assert answers[0] == answers[1]
        assert running.requests() == [1]


async def test_a_response_that_has_expired_says_so(tmp_path: Path) -> None:
    async with answering(tmp_path, responses={"ttl_s": 0.2}) as running:
        made = await running.send({"model": MODEL, "input": "hi"}, RESPONSES)
        name = made.json["id"]

        async def is_gone() -> bool:
            """Reading it does not make it live longer; going on with it would."""
            async with running.http.get(f"{RESPONSES}/{name}", headers=IN_A_SECOND) as read:
                return read.status == 404

        assert await eventually(is_gone, within_s=20)
        fields = {"model": MODEL, "input": "on", "previous_response_id": name}
        answer = await running.send(fields, RESPONSES, headers=IN_A_SECOND)
        assert answer.status == 404
        assert "expired" in said(RESPONSES, answer)
        assert (await running.send({"model": MODEL, "input": "new"}, RESPONSES)).status == 200


def refusing(message: str, param: str) -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        error = {"message": message, "type": "BadRequestError", "param": param, "code": 400}
        return web.json_response({"error": error}, status=400)

    return answer


@pytest.mark.parametrize(
    ("path", "fields", "chats", "own"),
    [
        (MESSAGES, {"max_tokens": 4, "messages": HI, "stop_sequences": ["\n"]}, "stop", "stop_sequences"),
        (RESPONSES, {"input": "hi", "reasoning": {"effort": "low"}}, "reasoning_effort", "reasoning.effort"),
        (RESPONSES, {"input": "hi", "max_output_tokens": 3}, "max_completion_tokens", "max_output_tokens"),
        (CHAT, {"messages": HI, "stop": ["\n"]}, "stop", "stop"),
    ],
)
async def test_what_an_engine_refuses_is_named_as_the_client_named_it(
    path: str, fields: dict[str, Any], chats: str, own: str
) -> None:
    member = Member(refusing(f"Invalid value for `{chats}`.", chats))
    async with listening(member), gateway(others=[member.upstream()]) as running:
        answer = await running.send({"model": MODEL, **fields}, path)
    assert answer.status == 400
    assert said(path, answer) == f"Invalid value for `{own}`."
    assert answer.json["error"].get("param", own) == own
