"""One gate stands before every handler: no route is reached past it, nor by a key that may not use it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.front_door import door
from support.gateway import COMPLETIONS, MODEL, Answered, Running, SimSettings, chat, gateway
from support.graph import CHAT
from support.recordings import recording
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from deployments.platform.door_secret import DOOR_SECRET_FILE
from serve_app.api.roles import Role
from serve_app.api.routes import FORM, JSON, ROUTES, Access, Route
from serve_app.settings.paths import AUDIO, ENGINE_PATHS, REALTIME

QUICK = SimSettings(itl_ms=0, tokens=2)
GATED = [route for route in ROUTES if route.access is not Access.OPEN]
OPEN = {
    "/sign-in", "/sign-in/callback", "/sign-out", "/health", "/ping", "/ready", "/version", "/openapi.json",
    "/docs", "/", "/console", "/console/{file}",
}  # fmt: skip
"""What anybody may ask: nothing of it tells of a tenant, or reaches a member."""
PARTS = {"{id}": "x", "{item}": "y", "{model:path}": MODEL, "{rest:path}": "moderations"}
RIGHTS: dict[str, dict[str, Any]] = {
    "elsewhere": {"endpoints": ("/v1/none",), "admin": True},
    "other-model": {"models": ("another",)},
    "this-model": {"models": (MODEL,)},
    "chats": {"endpoints": (CHAT, "/v1/mod*")},
    "viewer": {"role": Role.VIEWER},
    "team": {"role": Role.TENANT_ADMIN},
}


@asynccontextmanager
async def guarded() -> AsyncIterator[Running]:
    upstream = {"paths": [*ENGINE_PATHS, "/v1/moderations"]}
    shared = {"gateway": {"share_prefixes": True}}  # without, no engine that cannot salt is asked
    async with gateway(QUICK, upstream=upstream, tenants=[*RIGHTS], rights=RIGHTS, **shared) as running:
        yield running


def path_of(route: Route) -> str:
    path = route.path
    for name, value in PARTS.items():
        path = path.replace(name, value)
    assert "{" not in path, "a route has a part that this test does not know"
    return path


def calls() -> Iterator[tuple[Route, str]]:
    """Every method of every route that is not open."""
    for route in GATED:
        for method in sorted(route.methods):
            yield route, method


async def ask(running: Running, route: Route, method: str, tenant: str | None) -> Answered:
    """A request that is right but for its key."""
    headers = {} if tenant is None else running.headers(tenant)
    options: dict[str, Any] = {}
    accepted = route.media_types(method)
    if FORM in accepted:
        options["data"] = recording(MODEL)
    elif accepted:
        options["json"] = chat("hi") | {"input": "hi", "text_1": "a", "text_2": "b", "max_tokens": 2}
        options["json"] |= {"prompt": "hi"} if route.path == COMPLETIONS else {}
    assert not accepted or {JSON, FORM} & set(accepted)
    async with running.http.request(method, path_of(route), headers=headers, **options) as response:
        return Answered(response.status, response.headers, await response.read())


def code_of(answer: Answered) -> str:
    error = answer.error
    return str(error.get("code") or error["type"])


async def test_no_route_but_the_open_ones_answers_without_a_key() -> None:
    async with guarded() as running:
        for route, method in calls():
            answer = await ask(running, route, method, None)
            assert answer.status == 401, (route.path, method)
            if method != "HEAD":
                assert code_of(answer) in {"missing_api_key", "authentication_error"}, (
                    route.path,
                    answer.body,
                )
        assert running.requests() == [0]


async def test_a_key_of_other_endpoints_is_refused_at_every_route_even_an_administrators() -> None:
    async with guarded() as running:
        for route, method in calls():
            answer = await ask(running, route, method, "elsewhere")
            assert answer.status == 403, (route.path, method, answer.body)
            if method != "HEAD":
                assert path_of(route) in answer.error["message"]
                assert "/v1/none" in answer.error["message"]
        assert running.requests() == [0]


async def test_a_key_of_other_models_is_refused_at_every_route_that_names_one() -> None:
    async with guarded() as running:
        for route in GATED:
            names_none = "conversations" in route.path or route.handler == "feedback"
            if not route.media_types("POST") or route.access is Access.ADMIN or names_none:
                continue
            refused = await ask(running, route, "POST", "other-model")
            assert refused.status == 403, (route.path, refused.body)
            assert f"may not use the model '{MODEL}'" in refused.error["message"]
            assert "another" in refused.error["message"]
            allowed = await ask(running, route, "POST", "this-model")
            assert allowed.status != 403, (route.path, allowed.body)
        assert running.requests() != [0]


async def test_a_socket_is_refused_by_the_model_that_its_query_or_its_first_event_names() -> None:
    async with guarded() as running:
        address = running.url.replace("http", "ws", 1) + REALTIME
        headers = running.headers("other-model")
        with pytest.raises(InvalidStatus) as refused:
            async with connect(f"{address}?model={MODEL}", additional_headers=headers, proxy=None):
                pass
        assert refused.value.response.status_code == 403
        with pytest.raises(InvalidStatus) as unknown:
            async with connect(f"{address}?model={MODEL}", proxy=None):
                pass
        assert unknown.value.response.status_code == 401
        async with connect(address, additional_headers=headers, proxy=None) as ws:
            await ws.recv()
            await ws.send(f'{{"type": "session.update", "model": "{MODEL}"}}')
            assert "model_not_allowed" in str(await ws.recv())


async def test_a_key_may_use_the_endpoints_that_it_names_and_what_a_star_covers() -> None:
    async with guarded() as running:
        headers = running.headers("chats")
        assert (await running.post("hi", headers=headers)).status == 200
        assert (await running.send({"model": MODEL}, "/v1/moderations", headers)).status != 403
        refused = await running.send({"model": MODEL, "prompt": "x"}, "/v1/completions", headers)
        assert (refused.status, refused.error["code"]) == (403, "endpoint_not_allowed")


async def test_the_list_of_models_holds_those_that_a_key_may_use() -> None:
    async with guarded() as running:
        for tenant, seen in (("this-model", [MODEL]), ("other-model", [])):
            async with running.http.get("/v1/models", headers=running.headers(tenant)) as response:
                assert [card["id"] for card in (await response.json())["data"]] == seen
        async with running.http.get(
            f"/v1/models/{MODEL}", headers=running.headers("other-model")
        ) as response:
            assert response.status == 403


async def test_a_role_opens_the_routes_that_the_table_gives_it() -> None:
    async with guarded() as running:
        for role, tenant in ((Role.VIEWER, "viewer"), (Role.TENANT_ADMIN, "team"), (Role.USER, "chats")):
            for route, method in calls():
                if role in route.may_use:
                    continue
                answer = await ask(running, route, method, tenant)
                assert answer.status == 403, (role, route.path, method, answer.body)
        async with running.http.get("/admin/fleet", headers=running.headers("viewer")) as response:
            assert response.status == 200


def test_a_viewers_routes_change_nothing() -> None:
    for route in GATED:
        if Role.VIEWER in route.may_use:
            assert route.methods <= {"GET", "HEAD"}, route.path
        assert Role.ADMIN in route.may_use, route.path


def test_recordings_are_among_the_routes() -> None:
    assert {route.path for route in GATED} >= {*AUDIO, REALTIME, CHAT}


async def test_a_key_of_other_networks_is_refused_whatever_its_client_says_of_itself() -> None:
    rights = {"near": {"networks": ("127.0.0.0/8",)}, "far": {"networks": ("10.0.0.0/8",)}}
    async with gateway(QUICK, tenants=[*rights], rights=rights) as running:
        assert (await running.post("hi", headers=running.headers("near"))).status == 200
        for name in ("x-promptly-client", "x-forwarded-for", "x-real-ip", "forwarded"):
            forged = running.headers("far") | {name: "10.0.0.1"}
            refused = await running.post("hi", headers=forged)
            assert (refused.status, refused.error["code"]) == (403, "network_not_allowed")
            assert "10.0.0.1" not in refused.error["message"]


async def test_the_proxy_tells_gateways_its_clients_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text("5ecret")
    monkeypatch.setenv(DOOR_SECRET_FILE, str(tmp_path / "secret"))
    rights = {"near": {"networks": ("127.0.0.0/8",)}, "far": {"networks": ("10.0.0.0/8",)}}
    async with gateway(QUICK, tenants=[*rights], rights=rights) as running:
        behind = {"x-promptly-client": "5ecret 10.0.0.1"}
        assert (await running.post("hi", headers=running.headers("far") | behind)).status == 200
        assert (await running.post("hi", headers=running.headers("near") | behind)).status == 403
        async with door(running.url) as front:
            for tenant, status in (("near", 200), ("far", 403)):
                headers = running.headers(tenant) | {"x-promptly-client": "10.0.0.1"}
                async with running.http.post(front.url + CHAT, json=chat("hi"), headers=headers) as answer:
                    assert answer.status == status, await answer.text()


def test_no_other_route_is_open() -> None:
    assert {route.path for route in ROUTES if route.access is Access.OPEN} == OPEN
