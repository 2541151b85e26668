"""``/admin/keys`` and ``promptly keys``: from the first key to a revoked one, and what is refused."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.accounts import accounts_handle, bearer, with_accounts
from support.gateway import MODEL, Answered, Running, gateway
from support.graph import ADMIN_TOKEN, CHAT, eventually

from deployments.cli.endpoint import ADMIN_KEY
from deployments.cli.main import main
from serve_app.request.admin_token import TOKEN_VARIABLE

KEYS = "/admin/keys"


@asynccontextmanager
async def running_endpoint(folder: Path, **settings: Any) -> AsyncIterator[Running]:
    async with accounts_handle(folder, **settings) as handle, with_accounts(handle) as running:
        yield running


async def ask(running: Running, method: str, path: str, body: Any = None, key: str = ADMIN_TOKEN) -> Answered:
    options = {} if body is None else {"json": body}
    async with running.http.request(method, KEYS + path, headers=bearer(key), **options) as response:
        return Answered(response.status, response.headers, await response.read())


async def create(running: Running, key: str = ADMIN_TOKEN, **fields: Any) -> dict[str, Any]:
    answer = await ask(running, "POST", "", {"tenant": "acme", **fields}, key)
    assert answer.status == 201, answer.body
    made: dict[str, Any] = answer.json
    return made


async def chats(running: Running, key: str) -> int:
    return (await running.post("hi", headers=bearer(key))).status


# ---- a key's life ----


async def test_the_first_key_is_made_with_the_admin_token_and_works_at_once(tmp_path: Path) -> None:
    async with running_endpoint(tmp_path) as running:
        made = await create(running, user="ann@acme.example", label="Ann's laptop")
        assert made["key"].startswith(f"pk-{made['id']}-")
        assert await chats(running, made["key"]) == 200
        shown = (await ask(running, "GET", f"/{made['id']}")).json
        assert "key" not in shown
        assert (shown["user"], shown["label"], shown["role"], shown["version"]) == (
            "ann@acme.example",
            "Ann's laptop",
            "user",
            1,
        )
        assert "hash" not in json.dumps(shown)
        ended = (await ask(running, "DELETE", f"/{made['id']}")).json
        assert ended["revoked_at"] is not None
        assert await chats(running, made["key"]) == 401
        assert (await ask(running, "DELETE", f"/{made['id']}")).status == 200
        for method, path, body in (("PATCH", "", {"label": "x"}), ("POST", "/rotate", {})):
            refused = await ask(running, method, f"/{made['id']}{path}", body)
            assert (refused.status, refused.error["code"]) == (409, "key_revoked")


async def test_the_old_secret_works_until_the_overlap_is_over(tmp_path: Path) -> None:
    async with running_endpoint(tmp_path) as running:
        made = await create(running)
        rotated = (await ask(running, "POST", f"/{made['id']}/rotate", {"overlap_s": 600})).json
        assert rotated["key"] != made["key"]
        assert rotated["old_secret_until"] == pytest.approx(time.time() + 600, abs=60)
        assert (await chats(running, rotated["key"]), await chats(running, made["key"])) == (200, 200)
        last = (await ask(running, "POST", f"/{made['id']}/rotate", {"overlap_s": 0.2})).json
        assert await chats(running, made["key"]) == 401  # two secrets at most

        async def over() -> bool:
            return await chats(running, rotated["key"]) == 401

        assert await eventually(over, within_s=10)
        assert await chats(running, last["key"]) == 200
        assert (await ask(running, "GET", f"/{made['id']}")).json["version"] == 3


async def test_a_key_keeps_to_what_it_was_given_and_can_be_given_more(tmp_path: Path) -> None:
    async with running_endpoint(tmp_path) as running:
        made = await create(running, endpoints=["/v1/models"], models=[MODEL])
        assert await chats(running, made["key"]) == 403
        changed = await ask(running, "PATCH", f"/{made['id']}", {"endpoints": ["/v1/models", "/v1/chat/*"]})
        assert (changed.status, changed.json["models"]) == (200, [MODEL])
        assert await chats(running, made["key"]) == 200
        await ask(running, "PATCH", f"/{made['id']}", {"endpoints": None, "expires_in_s": 0.2})

        async def over() -> bool:
            return await chats(running, made["key"]) == 401

        assert await eventually(over, within_s=10)
        await ask(running, "PATCH", f"/{made['id']}", {"expires_at": None})
        assert await chats(running, made["key"]) == 200


async def test_of_two_administrators_who_change_one_key_the_second_is_told(tmp_path: Path) -> None:
    async with running_endpoint(tmp_path) as running:
        made = await create(running)
        one, two = await asyncio.gather(
            *(ask(running, "PATCH", f"/{made['id']}", {"label": name, "version": 1}) for name in "ab")
        )
        assert sorted([one.status, two.status]) == [200, 409]
        late = one if one.status == 409 else two
        assert late.error["code"] == "version_conflict"
        assert late.headers["x-should-retry"] == "false"
        assert "version 2" in late.error["message"]


async def test_keys_are_listed_in_pages(tmp_path: Path) -> None:
    async with running_endpoint(tmp_path) as running:
        made = [await create(running, user=user) for user in ("ann", "bob", "ann")]
        page = (await ask(running, "GET", "?limit=2&tenant=acme")).json
        rest = (await ask(running, "GET", f"?limit=2&after={page['next']}")).json
        assert [key["id"] for key in page["keys"] + rest["keys"]] == sorted(key["id"] for key in made)
        assert rest["next"] is None
        assert len((await ask(running, "GET", "?user=ann")).json["keys"]) == 2
        assert (await ask(running, "GET", "?state=revoked")).json["keys"] == []


# ---- what is refused ----


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tenant": "a b"}, "tenant"),
        ({"tenant": None}, "tenant"),
        ({"user": "a\nb"}, "user"),
        ({"label": "x" * 201}, "label"),
        ({"role": "king"}, "role"),
        ({"models": ["nobody"]}, "models"),
        ({"models": "sim"}, "models"),
        ({"endpoints": ["chat"]}, "endpoints"),
        ({"endpoints": ["/v1/*/x"]}, "endpoints"),
        ({"networks": ["10.0.0.1/8"]}, "networks"),
        ({"networks": ["everywhere"]}, "networks"),
        ({"priority": -1}, "priority"),
        ({"priority": 10}, "priority"),
        ({"expires_at": 1.0}, "expires_at"),
        ({"expires_at": 1e12}, "expires_at"),
        ({"expires_in_s": -5}, "expires_in_s"),
        ({"expires_in_s": 5, "expires_at": None}, "expires_in_s"),
        ({"secret": "mine"}, "secret"),
    ],
)
async def test_a_wrong_field_is_named_and_nothing_is_made(
    tmp_path: Path, fields: Mapping[str, Any], param: str
) -> None:
    async with running_endpoint(tmp_path) as running:
        answer = await ask(running, "POST", "", {"tenant": "acme", **fields})
        assert (answer.status, answer.error["param"]) == (400, param), answer.body
        assert (await ask(running, "GET", "?state=any")).json["keys"] == []


async def test_a_tenants_administrator_keeps_its_keys_and_gives_no_more_than_it_has(tmp_path: Path) -> None:
    async with running_endpoint(tmp_path) as running:
        foreign = await create(running, tenant="beta")
        own = await create(running, role="admin")
        urgent = await create(running, priority=0)
        keeper = (await create(running, role="tenant_admin", models=[MODEL]))["key"]
        made = await create(running, keeper, models=[MODEL], user="ann")
        assert (made["tenant"], await chats(running, made["key"])) == ("acme", 200)
        for fields, param in (
            ({"tenant": "beta", "models": [MODEL]}, "tenant"),
            ({"role": "admin", "models": [MODEL]}, "role"),
            ({"role": "viewer", "models": [MODEL]}, "role"),
            ({"priority": 0, "models": [MODEL]}, "priority"),
            ({"debug_timing": True, "models": [MODEL]}, "debug_timing"),
            ({}, "models"),
        ):
            refused = await ask(running, "POST", "", {"tenant": "acme", **fields}, keeper)
            assert (refused.status, refused.error["param"]) == (403, param), refused.body
        for method, path in (("GET", ""), ("PATCH", ""), ("DELETE", ""), ("POST", "/rotate")):
            hidden = await ask(running, method, f"/{foreign['id']}{path}", {}, keeper)
            assert (hidden.status, hidden.error["code"]) == (404, "key_not_found")
        for method, path in (("PATCH", ""), ("DELETE", ""), ("POST", "/rotate")):
            refused = await ask(running, method, f"/{own['id']}{path}", {}, keeper)
            assert refused.status == 403, (method, refused.body)
        for fields in ({"role": "user", "models": [MODEL]}, {"expires_in_s": 1}):
            assert (await ask(running, "PATCH", f"/{own['id']}", fields, keeper)).status == 403
        assert (await ask(running, "POST", f"/{urgent['id']}/rotate", {}, keeper)).status == 403
        assert (await ask(running, "DELETE", f"/{urgent['id']}", None, keeper)).status == 200
        listed = (await ask(running, "GET", "?state=any", None, keeper)).json["keys"]
        assert {key["tenant"] for key in listed} == {"acme"}
        assert (await ask(running, "GET", "?tenant=beta", None, keeper)).status == 403
        assert (await ask(running, "GET", "", None, made["key"])).status == 403


async def test_while_the_owner_is_away_or_its_file_is_full_changes_are_refused_with_a_reason(
    tmp_path: Path,
) -> None:
    async with accounts_handle(tmp_path) as handle, with_accounts(handle) as running:
        made = await create(running)
        for method in ("make_key", "change_key", "key", "keys"):
            with handle.failing(method):
                asked = {
                    "make_key": ("POST", "", {"tenant": "acme"}),
                    "change_key": ("PATCH", f"/{made['id']}", {"label": "x"}),
                    "key": ("GET", f"/{made['id']}", None),
                    "keys": ("GET", "", None),
                }[method]
                refused = await ask(running, *asked)
            assert (refused.status, refused.error["code"]) == (503, "accounts_unavailable")
            assert "their owner is away" in refused.error["message"]
        assert await chats(running, made["key"]) == 200
    async with running_endpoint(tmp_path, min_free_disk_bytes=1 << 60) as running:
        refused = await ask(running, "POST", "", {"tenant": "acme"})
        assert (refused.status, refused.error["code"]) == (503, "accounts_unavailable")
        assert "the disk is full" in refused.error["message"]
        assert str(tmp_path) not in refused.error["message"]
        assert await chats(running, made["key"]) == 200


async def test_keys_are_bounded_and_without_accounts_there_are_none(tmp_path: Path) -> None:
    async with running_endpoint(tmp_path, max_keys=1) as running:
        await create(running)
        refused = await ask(running, "POST", "", {"tenant": "acme"})
        assert (refused.status, refused.error["code"]) == (409, "too_many_keys")
        assert (await ask(running, "GET", "/nobody")).status == 404
        assert (await ask(running, "GET", "?nobody=1")).status == 400
        assert (await ask(running, "GET", "?limit=0")).status == 400
    async with gateway() as running:
        absent = await ask(running, "GET", "")
        assert (absent.status, absent.error["code"]) == (404, "no_accounts")


# ---- promptly keys ----


async def test_the_command_does_all_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ADMIN_KEY, raising=False)
    monkeypatch.setenv(TOKEN_VARIABLE, ADMIN_TOKEN)
    async with running_endpoint(tmp_path) as running:

        async def said(*arguments: str, status: int = 0) -> str:
            done = await asyncio.to_thread(main, ["keys", *arguments, "--endpoint", running.url])
            output = capsys.readouterr()
            assert done == status, output
            return output.out if status == 0 else output.err

        made = json.loads(
            await said(
                *("create", "--tenant", "acme", "--user", "ann", "--label", "a b", "--model", MODEL),
                *("--path", CHAT, "--expires-in", "90d", "--priority", "7", "--json"),
            )
        )
        assert made["expires_at"] == pytest.approx(time.time() + 90 * 86_400, abs=60)
        assert (made["models"], made["endpoints"], made["priority"]) == ([MODEL], [CHAT], 7)
        assert await chats(running, made["key"]) == 200
        assert f"id={made['id']}" in await said("list", "--tenant", "acme")
        assert made["key"] not in await said("show", made["id"])
        await said("change", made["id"], "--path", "any", "--label", "c", "--version", "1")
        told = await said("change", made["id"], "--label", "d", "--version", "1", status=1)
        assert "409" in told
        assert "version 2" in told
        rotated = await said("rotate", made["id"], "--overlap", "1h")
        assert await chats(running, rotated.split()[-1]) == 200
        assert "revoked_at" in await said("revoke", made["id"])
        assert await chats(running, made["key"]) == 401
        assert await said("list") == "\n"
        assert "90x" in await said("create", "--expires-in", "90x", status=1)
        monkeypatch.delenv(TOKEN_VARIABLE)
        assert ADMIN_KEY in await said("list", status=1)
