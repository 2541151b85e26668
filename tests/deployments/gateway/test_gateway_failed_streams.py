"""An answer that fails after its first token is no shorter answer, however its server says so."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web
from scripted_member import Answer, Member, answers, begin, chunk, listening
from support.gateway import MODEL, gateway
from support.graph import CHAT

KEY = "vendor/secret-key-123"
MESSAGES, RESPONSES = "/v1/messages", "/v1/responses"
ASKED: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [{"role": "user", "content": "hi"}]},
    MESSAGES: {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 16},
    RESPONSES: {"input": "hi"},
}
COMPLETE = {CHAT: b"[DONE]", MESSAGES: b"message_stop", RESPONSES: b"response.completed"}


def by_sevens(event: bytes) -> list[bytes]:
    return [event[at : at + 7] for at in range(0, len(event), 7)]


ERROR = b'{"error":{"message":"no more","code":500}}'
BESIDE = chunk("", finish_reason="error").replace(b"{", b'{"error":{"message":"no more","code":502},', 1)
BEHIND_ID = chunk("").replace(b'"choices"', b'"error":{"message":"no more","code":502},"choices"')
MIDDLE = BEHIND_ID.index(b"ror")
TELLS = {
    "one piece": [b"data: " + ERROR + b"\n\n"],
    "two pieces": [b"data: " + ERROR[:4], ERROR[4:] + b"\n\n"],
    "single bytes": [bytes([byte]) for byte in b"data: " + ERROR + b"\r\n\r\n"],
    "no space": [b"data:" + ERROR + b"\n\n"],
    "beside choices": [b"data: " + BESIDE + b"\n\n"],
    "behind an id": [b"data: " + BEHIND_ID + b"\n\n"],
    "behind an id, in pieces": [b"data: " + BEHIND_ID[:MIDDLE], BEHIND_ID[MIDDLE:] + b"\n\n"],
    "behind an id, by sevens": by_sevens(b"data: " + BEHIND_ID + b"\n\n"),
    "only a reason": [b"data: " + chunk("", finish_reason="error") + b"\n\n"],
}


def in_pieces(*pieces: bytes) -> Answer:
    """A stream of one token, these pieces and ``[DONE]``."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = await begin(request)
        for piece in (b"data: " + chunk("one") + b"\n\n", *pieces, b"data: [DONE]\n\n"):
            await response.write(piece)
            await asyncio.sleep(0.002)  # each is read apart
        return response

    return answer


@pytest.mark.parametrize("path", ASKED)
@pytest.mark.parametrize("how", TELLS)
async def test_a_stream_that_fails_does_not_end_as_if_it_were_complete(path: str, how: str) -> None:
    member = Member(in_pieces(*TELLS[how]))
    async with listening(member), gateway(others=[member.upstream()]) as running:
        answer = await running.send({"model": MODEL, **ASKED[path], "stream": True}, path)
    assert answer.status == 200
    assert COMPLETE[path] not in answer.body, answer.body
    assert b"error" in answer.body.rpartition(b"data: ")[2]
    assert how == "only a reason" or b"no more" in answer.body


@pytest.mark.parametrize("path", ASKED)
async def test_a_text_that_speaks_of_errors_is_complete_in_pieces_too(path: str) -> None:
    event = b"data: " + chunk('{"error": "x"} data: {"error"', error=None) + b"\n\n"
    member = Member(in_pieces(*by_sevens(event), b"data: " + chunk("", finish_reason="stop") + b"\n\n"))
    async with listening(member), gateway(others=[member.upstream()]) as running:
        answer = await running.send({"model": MODEL, **ASKED[path], "stream": True}, path)
    assert COMPLETE[path] in answer.body
    assert path != CHAT or event in answer.body, "its bytes are the server's own"


@pytest.mark.parametrize("path", [MESSAGES, RESPONSES])
async def test_a_whole_answer_that_failed_is_an_error(path: str) -> None:
    choice = {"index": 0, "message": {"role": "assistant", "content": "half"}, "finish_reason": "error"}
    member = Member(answers(200, {"id": "1", "model": "sim", "choices": [choice]}))
    async with listening(member), gateway(others=[member.upstream()]) as running:
        answer = await running.send({"model": MODEL, **ASKED[path]}, path)
    assert answer.status == 502


@pytest.mark.parametrize("path", ASKED)
@pytest.mark.parametrize("size", [9, 1000])
async def test_a_key_with_escapes_in_a_streams_error_does_not_reach_the_client(
    monkeypatch: pytest.MonkeyPatch, path: str, size: int
) -> None:
    monkeypatch.setenv("VENDOR_KEY", KEY)
    escaped = KEY.replace("/", "\\u002f").replace("k", "\\u006b")
    event = f'data: {{"error":{{"message":"wrong key {escaped}"}}}}\n\n'.encode()
    member = Member(in_pieces(*(event[at : at + size] for at in range(0, len(event), size))))
    async with listening(member), gateway(others=[member.upstream(key_env="VENDOR_KEY")]) as running:
        answer = await running.send({"model": MODEL, **ASKED[path], "stream": True}, path)
    last = json.loads(answer.body.rpartition(b"data: ")[2])
    assert "wrong key [redacted]" in json.dumps(last)
    assert KEY not in json.dumps(last)
