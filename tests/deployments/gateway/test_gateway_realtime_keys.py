"""A session that is open when its key is revoked, expires or loses its rights."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.accounts import accounts_handle, bearer, managed, with_accounts
from support.gateway import FAST, MODEL, Running
from support.graph import eventually
from support.handles import LocalHandle
from test_gateway_realtime import (
    APPEND,
    COMMIT,
    LIVE,
    TRANSCRIBED,
    at_engine,
    audio,
    closed,
    opened,
    say,
    speak,
    until,
)
from websockets.asyncio.client import ClientConnection

from deployments.gateway.request.authentication import Authenticator
from deployments.gateway.request.gate import Gate
from deployments.gateway.request.socket import ClientSocket
from serve_app.accounts.keys import ManagedKey, changed_to, revoked
from serve_app.accounts.refused import Refused, RefusedUser, RefusedUsers
from serve_app.api.roles import Role
from serve_app.api.routes import Access, Route
from serve_app.errors import Forbidden, Unauthorized
from serve_app.request.auth import Identity, KeyRing


@dataclass
class Open:
    """A session, and the key that it was opened with."""

    running: Running
    handle: LocalHandle
    key: ManagedKey
    headers: dict[str, str]
    ws: ClientConnection

    async def utter(self) -> None:
        await speak(self.ws)
        await say(self.ws, COMMIT)
        await until(self.ws, f"{TRANSCRIBED}.completed")

    async def change(self, code: str, fields: Mapping[str, Any]) -> None:
        """The key, until the gateway refuses its requests with this code. Without fields it is revoked."""
        now, record = time.time(), msgspec.structs.replace(self.key.record, **fields)
        self.key = (
            changed_to(self.key, record, by="", now=now) if fields else revoked(self.key, by="", now=now)
        )
        await self.handle.target.change_key(self.key)
        assert await eventually(lambda: said(self.running, self.headers, code), within_s=10)


async def said(running: Running, headers: Mapping[str, str], code: str) -> bool:
    """Whether a new request of the key is refused with this code; "": is answered."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
    async with running.http.post("/v1/chat/completions", json=body, headers=headers) as response:
        found = (await response.json()).get("error", {}).get("code", "")
    return bool(found == code)


@asynccontextmanager
async def session(folder: Path) -> AsyncIterator[Open]:
    async with accounts_handle(folder) as handle:
        key, kept = managed("acme")
        await handle.target.make_key(kept)
        headers = bearer(key)
        async with with_accounts(handle, FAST, upstream=LIVE) as running:
            assert await eventually(lambda: said(running, headers, ""), within_s=10)
            async with opened(running, headers=headers) as ws:
                yield Open(running, handle, kept, headers, ws)


@pytest.mark.parametrize(
    ("fields", "code", "type_"),
    [
        ({}, "invalid_api_key", "authentication_error"),
        ({"expires_at": 1.0}, "expired_api_key", "authentication_error"),
        ({"models": ("another",)}, "model_not_allowed", "permission_error"),
        ({"networks": ("192.0.2.0/24",)}, "network_not_allowed", "permission_error"),
    ],
)
async def test_an_open_session_ends_at_the_next_audio_of_a_key_that_may_no_longer(
    tmp_path: Path, fields: dict[str, Any], code: str, type_: str
) -> None:
    async with session(tmp_path) as open_:
        await open_.utter()
        await open_.change(code, fields)
        heard = len(at_engine(open_.running).events)
        await say(open_.ws, APPEND, audio=audio(0.15))
        error, close = await closed(open_.ws)
        assert (error["code"], error["type"], close) == (code, type_, 1008)
        assert len(at_engine(open_.running).events) == heard


async def test_a_session_ends_in_the_middle_of_an_utterance_too(tmp_path: Path) -> None:
    async with session(tmp_path) as open_:
        await speak(open_.ws)
        await open_.change("invalid_api_key", {})
        await say(open_.ws, APPEND, audio=audio(0.15))
        assert (await closed(open_.ws))[1] == 1008


async def test_a_session_goes_on_with_a_key_that_lost_other_rights(tmp_path: Path) -> None:
    async with session(tmp_path) as open_:
        await open_.change("endpoint_not_allowed", {"endpoints": ("/v1/realtime",)})
        await open_.utter()


async def test_a_session_of_who_signed_in_lasts_as_long_as_the_token() -> None:
    class Provider:
        async def of(self, headers: Mapping[str, str]) -> Identity:
            return Identity("maths", Role.USER, user="ada", expires_at=200.0)

    async def nothing(*_: Any) -> Any:
        raise AssertionError("the gate neither reads nor sends")

    now = [100.0]
    refused = RefusedUsers()
    refused.replace(Refused("first", ()))
    gate = Gate(Authenticator(KeyRing([]), None), Provider(), lambda: now[0], refused=refused)
    scope = {"type": "websocket", "path": "/v1/realtime", "headers": [(b"authorization", b"Bearer a.b.c")]}
    socket = ClientSocket(scope, nothing, nothing)
    await gate.enter(socket.exchange, Route("/v1/realtime", "realtime", Access.KEY, {}))
    now[0] = 199.0
    assert socket.still_allowed().user == "ada"
    now[0] = 200.0
    with pytest.raises(Unauthorized):
        socket.still_allowed()
    now[0] = 199.0
    refused.put([RefusedUser(tenant="maths", user="ada", at=1.0)])
    with pytest.raises(Forbidden):
        socket.still_allowed()
