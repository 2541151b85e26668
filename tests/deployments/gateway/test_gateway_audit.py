"""Every administrative change has a line before it is made, and another before it is answered."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from local_cache import local_cache
from support.accounts import accounts_handle, bearer, managed, with_accounts
from support.gateway import Running
from support.graph import eventually

from deployments.accounts.audit_log import FILE
from deployments.cli.main import main
from deployments.gateway.accounts.audit import event_of
from deployments.gateway.request.authentication import ANYONE, OWNER
from deployments.gateway.request.exchange import Exchange
from serve_app.api.roles import Role
from serve_app.api.routes import ROUTES, Access, Operation, Route
from serve_app.request.auth import Identity

CHANGES = [
    (route, method, operation)
    for route in ROUTES
    if route.access is Access.ADMIN
    for method, operation in route.operations.items()
    if method != "GET"
]
NAMES = [f"{method} {route.path}" for route, method, _ in CHANGES]
SECRET = "pk-0123456789ab-verysecretverysecretverysecret"


def lines(folder: Path) -> list[dict[str, Any]]:
    path = folder / FILE
    return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


def said(folder: Path) -> list[tuple[str, str, str]]:
    return [(line["actor"], line["action"], line["outcome"]) for line in lines(folder)]


async def until_said(folder: Path, *wanted: tuple[str, str, str]) -> None:
    async def so() -> bool:
        return all(each in said(folder) for each in wanted)

    assert await eventually(so, within_s=20), said(folder)


async def until_known(running: Running, key: str) -> None:
    async def so() -> bool:
        return (await sent(running, "GET", "/v1/models", headers=bearer(key)))[0] == 200

    assert await eventually(so, within_s=20)


def path_of(route: Route) -> str:
    return route.path.replace("{id}", "0123456789ab")


async def sent(running: Running, method: str, path: str, **options: Any) -> tuple[int, dict[str, Any]]:
    async with running.http.request(method, path, **options) as response:
        text = await response.text()
        return response.status, json.loads(text) if text else {}


def test_every_administrative_change_has_a_name_in_the_log() -> None:
    assert len(CHANGES) >= 3
    assert [name for name, (_, _, each) in zip(NAMES, CHANGES, strict=True) if each.audit is None] == []


@pytest.mark.parametrize(("route", "method", "operation"), CHANGES, ids=NAMES)
async def test_every_administrative_change_writes_its_lines(
    route: Route, method: str, operation: Operation, tmp_path: Path
) -> None:
    async with accounts_handle(tmp_path) as handle, with_accounts(handle) as running:
        status, _ = await sent(running, method, path_of(route), json={})
        begun, ended = (line for line in lines(tmp_path) if line["action"] == operation.audit)
        assert (begun["actor"], begun["role"], begun["outcome"]) == ("admin-token", "admin", "begun")
        assert begun["request_id"] == ended["request_id"] != ""
        assert (ended["outcome"] == "done") is (status < 400)


@pytest.mark.parametrize(("route", "method", "operation"), CHANGES, ids=NAMES)
async def test_what_cannot_be_written_down_is_not_done(
    route: Route, method: str, operation: Operation, tmp_path: Path
) -> None:
    async with accounts_handle(tmp_path) as handle, with_accounts(handle) as running:
        with handle.failing("audit"):
            status, body = await sent(running, method, path_of(route), json={})
        assert (status, body["error"]["code"]) == (503, "accounts_unavailable")
        assert operation.audit not in [line["action"] for line in lines(tmp_path)]


async def test_a_purge_says_what_was_purged_and_that_it_was_done(folder: Path, tmp_path: Path) -> None:
    async with (
        local_cache(folder) as cache,
        accounts_handle(tmp_path) as handle,
        with_accounts(handle, handles=cache.handles, **cache.args) as running,
    ):
        status, _ = await sent(running, "DELETE", "/admin/cache?tag=old&model=m")
        assert status == 200
        written = [(line["action"], line["target"], line["outcome"]) for line in lines(tmp_path)]
        assert written == [("cache.purge", "tag=old model=m", word) for word in ("begun", "done")]
        with handle.failing("audit"):
            assert (await sent(running, "DELETE", "/admin/cache?tag=old"))[0] == 503
            assert (await sent(running, "GET", "/admin/cache"))[0] == 200


async def test_a_change_whose_end_cannot_be_written_is_answered_and_written_later(
    folder: Path, tmp_path: Path
) -> None:
    async with (
        local_cache(folder) as cache,
        accounts_handle(tmp_path) as handle,
        with_accounts(handle, handles=cache.handles, **cache.args) as running,
    ):
        write = handle.target.audit

        async def fails_once(event: Any) -> Any:
            if event.outcome != "begun" and not handle.ended["failed"]:
                handle.ended["failed"] += 1
                raise RuntimeError("broken on purpose")
            return await write(event)

        handle.target.audit = fails_once
        assert (await sent(running, "DELETE", "/admin/cache?tag=old"))[0] == 200
        await until_said(tmp_path, ("admin-token", "cache.purge", "begun"))
        await until_said(tmp_path, ("admin-token", "cache.purge", "done"))


async def test_refused_calls_have_lines_up_to_a_bound(tmp_path: Path) -> None:
    bound = {"logs": {"refused_per_s": 2.0}}
    async with accounts_handle(tmp_path) as handle, with_accounts(handle, **bound) as running:
        key, kept = managed("a")
        await handle.target.make_key(kept)
        nobody = {"authorization": "Bearer wrong"}
        await until_known(running, key)
        for _ in range(50):
            assert (await sent(running, "DELETE", "/admin/cache?tag=x", headers=nobody))[0] == 401
        assert (await sent(running, "DELETE", "/admin/cache?tag=x", headers=bearer(key)))[0] == 403
        await until_said(
            tmp_path,
            ("unknown", "cache.purge", "invalid_api_key"),
            (f"key:{kept.record.id}", "cache.purge", "admin_only"),
        )
        assert len(lines(tmp_path)) < 40


async def test_a_strangers_calls_do_not_fill_the_log(tmp_path: Path) -> None:
    bound = {"logs": {"refused_per_s": 5.0}}
    async with accounts_handle(tmp_path) as handle, with_accounts(handle, **bound) as running:
        nobody = {"authorization": "Bearer wrong"}
        began = time.monotonic()
        for _ in range(60):
            assert (await sent(running, "DELETE", "/admin/cache?tag=x", headers=nobody))[0] == 401
        await until_said(tmp_path, ("unknown", "cache.purge", "invalid_api_key"))
        refused = [line for line in lines(tmp_path) if line["actor"] == "unknown"]
        assert len(refused) <= 5 + 1 + (time.monotonic() - began) / 6


async def test_a_refused_key_is_named(tmp_path: Path) -> None:
    async with accounts_handle(tmp_path) as handle, with_accounts(handle) as running:
        key, kept = managed("a")
        await handle.target.make_key(kept)

        await until_known(running, key)
        assert (await sent(running, "DELETE", "/admin/cache?tag=x", headers=bearer(key)))[0] == 403
        await until_said(tmp_path, (f"key:{kept.record.id}", "cache.purge", "admin_only"))
        (line,) = lines(tmp_path)
        assert (line["tenant"], line["role"], line["target"]) == ("a", "user", "tag=x")


async def test_usage_that_is_exported_has_a_line(tmp_path: Path) -> None:
    async with accounts_handle(tmp_path) as handle, with_accounts(handle) as running:
        async with running.http.get("/admin/usage?format=csv&tenant=a") as response:
            assert response.status == 200
        await until_said(tmp_path, ("admin-token", "usage.read", "done"))
        (line,) = lines(tmp_path)
        assert line["target"] == "format=csv tenant=a"


async def test_a_look_that_was_refused_is_not_said_to_be_done(tmp_path: Path) -> None:
    async with accounts_handle(tmp_path) as handle, with_accounts(handle) as running:
        key, kept = managed("a", role=Role.TENANT_ADMIN)
        await handle.target.make_key(kept)
        await until_known(running, key)
        assert (await sent(running, "GET", "/admin/usage?tenant=b", headers=bearer(key)))[0] == 403
        await until_said(tmp_path, (f"key:{kept.record.id}", "usage.read", "other_tenant"))
        assert len(lines(tmp_path)) == 1


async def test_the_log_says_what_a_key_and_a_limit_became(tmp_path: Path) -> None:
    async with accounts_handle(tmp_path) as handle, with_accounts(handle) as running:
        _, made = await sent(running, "POST", "/admin/keys", json={"tenant": "a", "models": ["sim"]})
        await sent(running, "PATCH", f"/admin/keys/{made['id']}", json={"role": "admin", "models": None})
        bound = {"scope": "tenant:a", "tokens_per_day": 1000}
        assert (await sent(running, "PUT", "/admin/limits", json=bound))[0] == 200
        done = [line["target"] for line in lines(tmp_path) if line["outcome"] == "done"]
        assert done == [
            f"key={made['id']} tenant=a role=user priority=5 models=sim",
            f"/admin/keys/{made['id']} role=admin priority=5",
            "scope=tenant:a tokens_per_day=1000",
        ]


async def test_a_tenants_administrator_cannot_push_out_the_lines_of_others(tmp_path: Path) -> None:
    bound = {"accounts": {"tenant_changes_per_minute": 3}}
    async with accounts_handle(tmp_path) as handle, with_accounts(handle, **bound) as running:
        key, kept = managed("a", role=Role.TENANT_ADMIN)
        await handle.target.make_key(kept)
        await until_known(running, key)
        nonsense = [
            (await sent(running, "POST", "/admin/keys", json={"tenant": 1}, headers=bearer(key)))[0]
            for _ in range(20)
        ]
        assert nonsense.count(429) >= 15
        assert len(lines(tmp_path)) <= 10
        assert (await sent(running, "POST", "/admin/keys", json={"tenant": "b"}))[0] == 201


async def test_the_newest_lines_are_shown_to_administrators_only(tmp_path: Path) -> None:
    async with accounts_handle(tmp_path) as handle, with_accounts(handle) as running:
        viewer, kept = managed("ops", role=Role.VIEWER)
        await handle.target.make_key(kept)
        await sent(running, "DELETE", "/admin/cache?tag=1")
        status, shown = await sent(running, "GET", "/admin/audit?last=1")
        (line,) = shown["lines"]
        assert (status, line["action"], line["outcome"]) == (200, "cache.purge", "no_cache")
        assert shown["head"]["seq"] >= line["seq"]
        for wrong in ("last=0", "last=x", "last=9999", "first=1"):
            assert (await sent(running, "GET", f"/admin/audit?{wrong}"))[0] == 400
        await until_known(running, viewer)
        assert (await sent(running, "GET", "/admin/audit", headers=bearer(viewer)))[0] == 403


async def test_no_secret_and_no_unknown_parameter_reaches_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with accounts_handle(tmp_path) as handle, with_accounts(handle) as running:
        await sent(
            running, "DELETE", f"/admin/cache?prompt=marked-text&tag={SECRET}", json={"a": "marked-body"}
        )
        written = (tmp_path / FILE).read_text()
        assert "pk-0123456789ab-***" in written
        assert "verysecret" not in written
        assert "marked" not in written
    assert main(["audit", "verify", str(tmp_path / FILE)]) == 0
    assert "the chain is whole" in capsys.readouterr().out


def test_each_kind_of_sender_has_a_name_of_its_own() -> None:
    exchange = Exchange({"type": "http", "method": "GET", "path": "/", "headers": []}, *([nobody_calls] * 2))
    names = {}
    for name, identity in (
        ("admin-token", OWNER),
        ("subject:ada", Identity("maths", Role.ADMIN, user="ada")),
        ("key:0123456789ab", Identity("maths", Role.ADMIN, key_id="0123456789ab", user="ada")),
        ("anyone", ANYONE),
    ):
        exchange.identity = identity
        names[name] = event_of(exchange, None, "done", "g").actor
    assert all(name == actor for name, actor in names.items()), names


async def nobody_calls(*_: Any) -> Any:
    raise AssertionError


async def test_sign_ins_have_lines_without_their_codes(tmp_path: Path) -> None:
    client = {"client_id": "console", "client_secret_env": "SECRET", "url": "http://localhost:1"}
    oidc = {"issuer": "http://127.0.0.1:9", "audiences": ["promptly"], "console": client}
    auth = {"accounts": True, "oidc": {**oidc, "tenant_claim": "team"}}
    async with (
        accounts_handle(tmp_path) as handle,
        with_accounts(handle, auth=auth, client_secret="s" * 20) as running,
        running.http.get("/sign-in/callback?code=marked-code&state=marked-state") as response,
    ):
        assert response.status >= 400
        await until_said(tmp_path, ("unknown", "sign_in", lines_code(await response.text())))
        assert "marked" not in (tmp_path / FILE).read_text()


def lines_code(body: str) -> str:
    error = json.loads(body)["error"]
    return str(error["code"] or error["type"])
