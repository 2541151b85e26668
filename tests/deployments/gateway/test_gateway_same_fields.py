"""Members get the fields by which the gateway has decided, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiohttp import web
from scripted_member import Member, listening
from support.accounts import accounts_handle, bearer, managed
from support.gateway import MODEL, gateway
from support.graph import CHAT, eventually

TWICE = (
    b'{"model":"dear","messages":[{"role":"user","content":"first","content":"hi"}],"max_tokens":90000,'
    b'"mod\\u0065l":"%s","max_tokens":5, "stream":false}' % MODEL.encode()
)


async def answer(_: web.Request) -> web.Response:
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    choice = {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
    return web.json_response({"object": "chat.completion", "choices": [choice], "usage": usage})


@pytest.mark.parametrize("path", [CHAT, "/v1/moderations"])
async def test_a_field_that_stands_twice_reaches_a_server_elsewhere_once(tmp_path: Path, path: str) -> None:
    member = Member(answer)
    async with listening(member), accounts_handle(tmp_path) as handle:
        key, kept = managed("acme", models=frozenset({MODEL}))
        await handle.target.make_key(kept)
        upstream = member.upstream(health_period_s=60.0, paths=[CHAT, "/v1/moderations"])
        args = {"auth": {"accounts": True}, "accounts": {"call_timeout_s": 0.5}}
        async with gateway(others=[upstream], handles={"accounts": handle}, **args) as running:

            async def is_known() -> bool:
                async with running.http.get("/v1/models", headers=bearer(key)) as response:
                    return response.status == 200

            assert await eventually(is_known, within_s=10)
            headers = {**bearer(key), "content-type": "application/json"}
            async with running.http.post(path, data=TWICE, headers=headers) as response:
                assert response.status == 200, await response.text()
    sent = member.seen[-1].body
    assert b"dear" not in sent
    assert b"90000" not in sent
    assert b"first" not in sent
    assert sent.count(b'"max_tokens"') == 1
    assert member.seen[-1].fields["max_tokens"] == 5
