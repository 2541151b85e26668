"""A token works until it expires, unless an administrator refuses its user: then nowhere, within a second."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.accounts import accounts_handle, bearer, managed, open_accounts, with_accounts
from support.gateway import Running
from support.graph import ADMIN_TOKEN, eventually
from support.handles import LocalHandle
from support.identity_provider import AUDIENCE, ScriptedProvider, scripted_provider, token

from deployments.accounts.audit_log import FILE
from deployments.cli.endpoint import ADMIN_KEY
from deployments.cli.main import main
from serve_app.accounts.refused import MOST_OF_TENANT

USERS = "/admin/refused-users"
OIDC = {
    "audiences": [AUDIENCE],
    "tenant_claim": "team",
    "role_claim": "groups",
    "roles": {"bosses": "admin", "heads": "tenant_admin"},
}
ADA = {"tenant": "maths", "user": "ada"}


@dataclass(frozen=True)
class Application:
    handle: LocalHandle
    provider: ScriptedProvider
    gateways: list[Running]

    def token(self, user: str = "ada", **changed: Any) -> str:
        return token(self.provider.url, sub=user, **changed)


@asynccontextmanager
async def application(folder: Path, gateways: int = 1) -> AsyncIterator[Application]:
    async with AsyncExitStack() as stack:
        provider = await stack.enter_async_context(scripted_provider())
        handle = await stack.enter_async_context(accounts_handle(folder))
        auth = {"accounts": True, "oidc": {"issuer": provider.url, **OIDC}}
        each = [
            await stack.enter_async_context(
                with_accounts(handle, auth=auth, accounts={"path": str(folder), "call_timeout_s": 0.5})
            )
            for _ in range(gateways)
        ]
        yield Application(handle, provider, each)


async def ask(
    running: Running, method: str = "POST", key: str = ADMIN_TOKEN, **more: Any
) -> tuple[int, dict[str, Any]]:
    async with running.http.request(method, USERS, headers=bearer(key), **more) as response:
        return response.status, await response.json()


async def chats(running: Running, key: str) -> tuple[int, str]:
    answer = await running.post("hi", headers=bearer(key))
    return answer.status, "" if answer.status == 200 else answer.error["code"]


async def until(running: Running, key: str, wanted: int) -> None:
    async def so() -> bool:
        return (await chats(running, key))[0] == wanted

    assert await eventually(so, within_s=10), await chats(running, key)


async def test_a_refused_user_gets_in_nowhere_by_token_or_key_until_let_in_again(tmp_path: Path) -> None:
    async with application(tmp_path, gateways=2) as app:
        here, there = app.gateways
        key, kept = managed("maths", user="ada")
        await app.handle.target.make_key(kept)
        sent = [app.token(), app.token(), key]
        others = [app.token("grace"), app.token(team="physics")]  # another user, and her name elsewhere
        for running in app.gateways:
            for each in (*sent, *others):
                await until(running, each, 200)
        status, said = await ask(here, json=ADA)
        assert (status, said["user"], said["by"], said["holds_admins"]) == (200, "ada", "", True)
        for each in sent:
            assert await chats(here, each) == (403, "user_refused")  # where it was asked for, at once
            await until(there, each, 403)
        for running in app.gateways:
            assert [(await chats(running, each))[0] for each in others] == [200, 200]
            assert (await ask(running, "GET"))[1]["users"] == [said]
        fresh = app.token(iat=time.time(), exp=time.time() + 600)
        assert await chats(there, fresh) == (403, "user_refused")  # the user is refused, not a token
        assert (await ask(there, "DELETE", params=ADA))[0] == 200
        assert (await ask(there, "DELETE", params=ADA))[0] == 404
        for running in app.gateways:
            for each in sent:
                await until(running, each, 200)


async def test_who_is_refused_stays_so_with_a_new_owner_and_at_a_new_gateway(tmp_path: Path) -> None:
    async with application(tmp_path) as app:
        (running,) = app.gateways
        await until(running, app.token(), 200)
        assert (await ask(running, json=ADA))[0] == 200
        await app.handle.target.close()  # as if it were killed
        app.handle.target = await open_accounts(tmp_path)
        auth = {"accounts": True, "oidc": {"issuer": app.provider.url, **OIDC}}
        async with with_accounts(app.handle, auth=auth) as later:
            assert await chats(later, app.token()) == (403, "user_refused")
            await until(later, app.token("grace"), 200)
        assert await chats(running, app.token()) == (403, "user_refused")


async def test_a_gateway_that_does_not_know_yet_who_is_refused_takes_no_token(tmp_path: Path) -> None:
    async with application(tmp_path) as app:
        with app.handle.held("exchange"):
            auth = {"accounts": True, "oidc": {"issuer": app.provider.url, **OIDC}}
            async with with_accounts(app.handle, auth=auth) as early:
                assert await chats(early, app.token()) == (503, "accounts_unavailable")
                app.handle.let("exchange")
                await until(early, app.token(), 200)


async def test_a_tenants_administrator_refuses_its_own_users_but_no_administrator(tmp_path: Path) -> None:
    async with application(tmp_path) as app:
        (running,) = app.gateways
        head, boss = app.token("emmy", groups=["heads"]), app.token("kurt", groups=["bosses"])
        await until(running, head, 200)
        assert (await ask(running, key=app.token(), json=ADA))[0] == 403
        assert (await ask(running, key=head, json={**ADA, "tenant": "physics"}))[0] == 403
        assert (await ask(running, key=head, json={"user": "emmy"}))[0] == 400  # nobody refuses oneself
        assert (await ask(running, key=head, json={"user": "kurt"}))[0] == 200
        assert (await chats(running, boss))[0] == 200
        assert (await ask(running, key=head, json={"user": "ada"}))[0] == 200
        assert (await chats(running, app.token()))[0] == 403
        assert (await ask(running, key=boss, json=ADA))[0] == 200  # now an administrator's word
        assert (await ask(running, key=head, json={"user": "ada"}))[0] == 200
        status, said = await ask(running, "DELETE", key=head, params={"user": "ada"})
        assert (status, said["error"]["code"]) == (403, "admin_only")
        assert (await chats(running, app.token()))[0] == 403
        await ask(running, json={"tenant": "maths", "user": "kurt"})
        assert await chats(running, boss) == (403, "user_refused")
        assert (await ask(running, json={"tenant": "other", "user": "x"}))[0] == 200
        seen = (await ask(running, "GET", key=head, params={"tenant": "other"}))[1]["users"]
        assert {each["tenant"] for each in seen} == {"maths"}


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"[]", b'{"tenant": "maths"}', b'{"tenant": "maths", "user": ""}', b'{"user": "x"}']
    + [json.dumps({**ADA, **wrong}).encode() for wrong in ({"user": "a\n"}, {"user": "x" * 257}, {"more": 1})]
    + [json.dumps({**ADA, "tenant": "no name"}).encode(), b"\xff"],
)
async def test_what_names_nobody_refuses_nobody(tmp_path: Path, body: bytes) -> None:
    async with application(tmp_path) as app:
        (running,) = app.gateways
        headers = bearer(ADMIN_TOKEN) | {"content-type": "application/json"}
        async with running.http.post(USERS, data=body, headers=headers) as response:
            assert response.status == 400, await response.text()
        assert (await ask(running, "GET"))[1]["users"] == []


async def test_a_tenant_has_a_most_and_a_locked_file_says_that_nothing_was_done(tmp_path: Path) -> None:
    async with application(tmp_path) as app:
        (running,) = app.gateways
        rows = [("maths", f"u{number}", b"{}") for number in range(MOST_OF_TENANT)]
        statement = "INSERT INTO refused_users VALUES(?, ?, ?)"
        await app.handle.target.store._write(lambda db: db.executemany(statement, rows))  # one by one is slow
        status, said = await ask(running, json=ADA)
        assert (status, said["error"]["code"]) == (409, "too_many_refused")
        with app.handle.failing("refuse_user"):
            status, said = await ask(running, json={"tenant": "physics", "user": "ada"})
            assert (status, said["error"]["code"]) == (503, "accounts_unavailable")
        assert (await chats(running, app.token(team="physics")))[0] == 200


async def test_the_command_refuses_shows_and_lets_in_and_the_audit_log_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(ADMIN_KEY, ADMIN_TOKEN)
    async with application(tmp_path) as app:
        (running,) = app.gateways

        async def command(*arguments: str) -> tuple[int, str, str]:
            where = ["--endpoint", running.url]
            status = await asyncio.to_thread(main, ["keys", *arguments, *where])
            return status, *capsys.readouterr()

        named = ("--tenant", "maths", "--user", "ada")
        await until(running, app.token(), 200)
        assert (await command("revoke", *named))[0] == 0
        assert (await chats(running, app.token()))[0] == 403
        assert "tenant=maths  user=ada" in (await command("refused"))[1]
        assert (await command("let-in", *named))[0] == 0
        assert (await chats(running, app.token()))[0] == 200
        assert (await command("refused"))[1].strip() == ""
        status, _, why = await command("revoke")
        assert (status, "--user" in why) == (1, True)
        status, _, why = await command("revoke", "0a1b2c3d4e5f", *named)
        assert (status, "not both" in why) == (1, True)
        lines = [json.loads(line) for line in (tmp_path / FILE).read_bytes().splitlines()]
        ended = [(line["action"], line["target"]) for line in lines if line["outcome"] == "done"]
        assert ended == [(action, "tenant=maths user=ada") for action in ("users.refuse", "users.let_in")]
