"""No route is forgotten: each that is not open is counted, and each that reaches a member costs tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.accounts import accounts_handle
from support.gateway import MODEL, Running, gateway
from support.graph import CHAT
from test_gateway_gate import GATED, QUICK, ask, calls
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from serve_app.api.roles import Role
from serve_app.api.routes import Access
from serve_app.settings.paths import ENGINE_PATHS, REALTIME

NO_MEMBER = {
    "me", "models", "model", "realtime", "response", "response_items", "response_cancel", "conversations",
    "conversation", "conversation_items", "conversation_item", "feedback",
}  # fmt: skip
"""Handlers of routes for keys that ask no member, and the socket, which asks one for its first audio."""


@asynccontextmanager
async def limited(folder: Path, **bounds: float) -> AsyncIterator[Running]:
    """A gateway with an administrator's key of a tenant that has these limits."""
    limits = {"limits": {"tenant": bounds}}
    async with accounts_handle(folder, **limits) as handle:
        upstream = {"paths": [*ENGINE_PATHS, "/v1/moderations"]}
        shared: dict[str, Any] = {"gateway": {"share_prefixes": True}, "accounts": limits}
        rights = {"acme": {"role": Role.ADMIN}}
        async with gateway(
            QUICK, upstream=upstream, tenants=["acme"], rights=rights, handles={"accounts": handle}, **shared
        ) as running:
            yield running


async def test_every_route_for_keys_is_counted_before_its_handler(tmp_path: Path) -> None:
    async with limited(tmp_path, requests_per_minute=0) as running:
        for route, method in calls():
            if route.access is Access.ADMIN:
                continue
            answer = await ask(running, route, method, "acme")
            assert answer.status == 429, (route.path, method, answer.body)
            assert answer.headers["x-should-retry"] == "false"
        address = running.url.replace("http", "ws", 1) + REALTIME
        with pytest.raises(InvalidStatus) as refused:
            await connect(address, additional_headers=running.headers("acme"), proxy=None)
        assert refused.value.response.status_code == 429
        assert running.requests() == [0]


async def test_administrators_act_also_when_their_tenants_limit_is_used_up(tmp_path: Path) -> None:
    async with limited(tmp_path, requests_per_minute=0) as running:
        for route, method in calls():
            if route.access is Access.ADMIN:
                answer = await ask(running, route, method, "acme")
                assert answer.status != 429, (route.path, method, answer.body)


async def test_every_route_that_reaches_a_member_reserves_tokens_there(tmp_path: Path) -> None:
    async with limited(tmp_path, tokens_per_day=0) as running:
        tried = 0
        for route in GATED:
            if route.access is Access.ADMIN or route.handler in NO_MEMBER:
                continue
            tried += 1
            answer = await ask(running, route, "POST", "acme")
            assert answer.status == 429, (route.path, answer.body)
            assert "tokens_per_day" in answer.error["message"], route.path
        assert tried > 10
        assert running.requests() == [0]


async def test_the_first_audio_of_a_socket_reserves_tokens(tmp_path: Path) -> None:
    async with limited(tmp_path, tokens_per_day=0) as running:
        address = running.url.replace("http", "ws", 1) + f"{REALTIME}?model={MODEL}"
        async with connect(address, additional_headers=running.headers("acme"), proxy=None) as ws:
            await ws.recv()
            await ws.send('{"type": "input_audio_buffer.append", "audio": "AAAA"}')
            assert "insufficient_quota" in str(await ws.recv())


async def test_money_is_a_limit_too(tmp_path: Path) -> None:
    async with limited(tmp_path, money_per_month=1.0) as running:
        answer = await running.post("hi", running.headers("acme"))
        assert answer.status == 200  # a model without a price costs none
        assert CHAT in {route.path for route in GATED}
