"""Keys that are made at run time: in force at every gateway, and what happens while their owner is away."""

from __future__ import annotations

import logging
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.accounts import accounts_handle, bearer, managed, open_accounts, with_accounts
from support.gateway import Running, gateway
from support.graph import AS_ADMIN, eventually
from support.handles import LocalHandle

from deployments.platform.steady_clock import SteadyClock
from serve_app.accounts.keys import ManagedKey, changed_to, revoked
from serve_app.request.auth import KeyRecord, KeySources, make_key


async def status(running: Running, key: str) -> int:
    return (await running.post("hi", headers=bearer(key))).status


async def until(running: Running, key: str, wanted: int) -> None:
    async def so() -> bool:
        return await status(running, key) == wanted

    assert await eventually(so, within_s=10), await status(running, key)


async def made(handle: LocalHandle, tenant: str = "acme", **rights: Any) -> tuple[str, ManagedKey]:
    key, kept = managed(tenant, **rights)
    await handle.target.make_key(kept)
    return key, kept


async def test_a_key_works_at_every_gateway_and_stops_at_every_gateway(tmp_path: Path) -> None:
    async with accounts_handle(tmp_path) as handle, AsyncExitStack() as stack:
        gateways = [await stack.enter_async_context(with_accounts(handle)) for _ in range(2)]
        key, kept = await made(handle)
        for running in gateways:
            await until(running, key, 200)
        await handle.target.change_key(revoked(kept, by="", now=time.time()))
        for running in gateways:
            await until(running, key, 401)


async def test_keys_of_the_file_work_beside_those_made_at_run_time(tmp_path: Path) -> None:
    own, record = make_key("ops")
    async with accounts_handle(tmp_path) as handle:
        key, _ = await made(handle)
        sources = KeySources(in_file=(record,))
        async with with_accounts(handle, key_sources=sources) as running:
            assert await status(running, own) == 200
            await until(running, key, 200)
            assert await status(running, make_key("acme")[0]) == 401


async def test_while_the_owner_is_away_known_keys_work_and_its_successor_knows_them_all(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def said(text: str) -> list[str]:
        return [each.getMessage() for each in caplog.records if text in each.getMessage()]

    async def told() -> bool:
        return bool(said("their owner is away"))

    async with accounts_handle(tmp_path) as handle, with_accounts(handle) as running:
        key, kept = await made(handle)
        await until(running, key, 200)
        with caplog.at_level(logging.INFO, logger="ray.serve"), handle.failing("exchange"):
            assert await eventually(told, within_s=10)
            assert await status(running, key) == 200
            assert await status(running, make_key("acme")[0]) == 401
            await handle.target.close()  # as if it were killed
            handle.target = await open_accounts(tmp_path)
            await handle.target.change_key(revoked(kept, by="", now=time.time()))
        await until(running, key, 401)
        assert len(said("their owner is away")) == 1


async def test_a_key_is_not_unknown_before_the_keys_came(tmp_path: Path) -> None:
    async with accounts_handle(tmp_path) as handle:
        key, _ = await made(handle)
        with handle.held("exchange"):
            async with with_accounts(handle) as running:
                early = await running.post("hi", headers=bearer(key))
                assert (early.status, early.error["code"]) == (503, "accounts_unavailable")
                assert early.headers["retry-after"] == "1"
                handle.let("exchange")
                await until(running, key, 200)


async def test_an_expired_key_is_refused_and_a_longer_time_lets_it_in_again(tmp_path: Path) -> None:
    async with accounts_handle(tmp_path) as handle, with_accounts(handle) as running:
        key, kept = await made(handle, expires_at=time.time() - 1)

        async def expired() -> bool:
            answer = await running.post("hi", headers=bearer(key))
            return answer.status == 401 and answer.error["code"] == "expired_api_key"

        assert await eventually(expired, within_s=10)
        longer = changed_to(kept, make_longer(kept), by="", now=time.time())
        await handle.target.change_key(longer)
        await until(running, key, 200)


def make_longer(kept: ManagedKey) -> KeyRecord:
    return msgspec.structs.replace(kept.record, expires_at=time.time() + 600)


def test_a_clock_that_is_set_back_brings_no_key_back_and_makes_none_live_longer() -> None:
    wall, passed = [1000.0], [0.0]
    now = SteadyClock(lambda: wall[0], lambda: passed[0])
    wall[0], passed[0] = 1010.0, 10.0
    assert now() == 1010.0
    wall[0], passed[0] = 500.0, 11.0
    assert now() == 1011.0
    wall[0], passed[0] = 600.0, 111.0
    assert now() == 1111.0
    wall[0], passed[0] = 5000.0, 112.0
    assert now() == 5000.0


async def test_the_admin_token_opens_admin_beside_these_keys_and_nothing_else(tmp_path: Path) -> None:
    async with accounts_handle(tmp_path) as handle, with_accounts(handle) as running:
        async with running.http.get("/admin/fleet") as response:
            assert response.status == 200
        assert (await running.post("hi")).status == 401
    async with (
        gateway(tenants=["a"]) as running,
        running.http.get("/admin/fleet", headers=AS_ADMIN) as answer,
    ):
        assert answer.status == 401
