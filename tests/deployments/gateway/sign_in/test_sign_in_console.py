"""Logins to the console at a real provider (oidc-provider-mock), over real HTTP; and attacks on them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest
from support.gateway import MODEL, Running, gateway
from support.identity_provider import ScriptedProvider, claims, real_provider, scripted_provider, sign
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Origin
from yarl import URL

from serve_app.request.auth import KeySources

CLIENT = "console"
CLIENT_SECRET = "the-secret-of-the-console"
SHARED = b"s" * 32
USERS: dict[str, dict[str, Any]] = {
    "ada": {"team": "maths", "groups": ["platform"]},
    "eve": {"groups": []},
}


def oidc(issuer: str, url: str) -> dict[str, Any]:
    console = {"client_id": CLIENT, "client_secret_env": "SECRET", "url": url}
    rules = {"tenant_claim": "team", "role_claim": "groups", "roles": {"platform": "admin"}}
    return {"oidc": {"issuer": issuer, "audiences": ["promptly"], "console": console, **rules}}


@asynccontextmanager
async def console(issuer: str, secret: bytes = SHARED) -> AsyncIterator[Running]:
    """Its address for browsers is made up: the client below stands for a proxy before it."""
    async with gateway(
        key_sources=KeySources(),
        tenant_secret=secret,
        client_secret=CLIENT_SECRET,
        auth=oidc(issuer, "http://localhost:1"),
    ) as running:
        yield running


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    with real_provider(**USERS) as url:
        yield url


class Person:
    """A browser, as far as cookies, redirects and the headers of its own pages go."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self.cookies: dict[str, str] = {}
        self.http = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar())

    async def __aenter__(self) -> Person:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.close()

    async def ask(self, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], str]:
        sent = {"cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())}
        url = URL(self.running.url + path, encoded=True)
        async with self.http.request(
            method, url, headers={**sent, **headers}, allow_redirects=False
        ) as response:
            for name, morsel in response.cookies.items():
                self.cookies[name] = morsel.value
                if morsel["max-age"] == "0":
                    del self.cookies[name]
            given = {name.lower(): value for name, value in response.headers.items()}
            return response.status, given, await response.text()

    async def own(self, path: str, method: str = "GET") -> tuple[int, Any]:
        """What a script of the console's page gets."""
        status, _, body = await self.ask(path, method, **{"sec-fetch-site": "same-origin"})
        return status, json.loads(body)

    async def begin(self, page: str = "fleet") -> str:
        """The provider's address."""
        status, headers, _ = await self.ask(f"/sign-in?page={page}")
        assert status == 302
        assert headers["cache-control"] == "no-store"
        return headers["location"]

    async def consent(self, url: str, sub: str) -> str:
        """At the provider; the path of the callback, with its query."""
        async with self.http.post(
            URL(url, encoded=True), data={"sub": sub}, allow_redirects=False
        ) as response:
            back = response.headers["location"]
        assert back.startswith("http://localhost:1/sign-in/callback?")
        return back.removeprefix("http://localhost:1")

    async def sign_in(self, sub: str = "ada") -> tuple[int, dict[str, str], str]:
        return await self.ask(await self.consent(await self.begin(), sub))


async def test_a_person_signs_in_works_and_signs_out(issuer: str) -> None:
    async with console(issuer) as running, Person(running) as ada:
        assert (await ada.own("/v1/me"))[0] == 401
        status, headers, body = await ada.sign_in()
        assert (status, headers["location"]) == (302, "http://localhost:1/console#/fleet"), body
        assert list(ada.cookies) == ["promptly-session"], "the login's own cookie is gone"
        status, who = await ada.own("/v1/me")
        assert (status, who["user"], who["tenant"], who["role"]) == (200, "ada", "maths", "admin")
        assert (await ada.own("/admin/fleet"))[0] == 200
        assert (await ada.own("/v1/models"))[0] == 200
        assert await ada.own("/sign-out", "POST") == (200, {"signed_in": False})
        assert (ada.cookies, (await ada.own("/v1/me"))[0]) == ({}, 401)


async def test_every_gateway_of_an_application_takes_the_session_and_no_other_does(
    issuer: str,
) -> None:
    async with console(issuer) as running, Person(running) as ada:
        await ada.sign_in()
        async with console(issuer) as second:
            ada.running = second
            assert (await ada.own("/v1/me"))[0] == 200
        async with console(issuer, b"t" * 32) as another:
            ada.running = another
            assert (await ada.own("/v1/me"))[0] == 401


async def test_the_session_counts_for_no_other_page(issuer: str) -> None:
    async with console(issuer) as running, Person(running) as ada:
        await ada.sign_in()
        foreign: list[dict[str, str]] = [
            {},
            {"sec-fetch-site": "cross-site"},
            {"sec-fetch-site": "same-site"},
            {"sec-fetch-site": "none"},
            {"origin": "https://evil.example"},
            {"origin": "null"},
            {"origin": "http://localhost:2"},
        ]
        for headers in foreign:
            for method, path in (("DELETE", "/admin/cache?tag=x"), ("GET", "/v1/me"), ("POST", "/sign-out")):
                status, _, body = await ada.ask(path, method, **headers)
                assert (status, json.loads(body)["error"]["code"]) == (403, "origin_not_allowed")
        assert (await ada.own("/v1/me"))[0] == 200


async def test_a_web_socket_takes_the_session_from_own_pages_only(issuer: str) -> None:
    async with console(issuer) as running, Person(running) as ada:
        await ada.sign_in()
        sent = {"cookie": f"promptly-session={ada.cookies['promptly-session']}"}
        url = running.url.replace("http", "ws", 1) + f"/v1/realtime?model={MODEL}"
        for foreign in ("https://evil.example", "http://localhost:2"):
            assert await opened(url, foreign, sent) == 403
        assert await opened(url, "http://localhost:1", sent) not in {401, 403}


async def opened(url: str, origin: str, headers: dict[str, str]) -> int:
    """The status of the answer to an upgrade."""
    try:
        async with connect(url, additional_headers=headers, origin=Origin(origin)):
            return 101
    except InvalidStatus as error:
        return error.response.status_code


async def test_logins_do_not_storm_a_provider_that_is_away() -> None:
    async with scripted_provider() as provider:
        provider.gives("/.well-known/openid-configuration", b"", status=500)
        async with console(provider.url) as running, Person(running) as ada:
            for _ in range(5):
                status, _, body = await ada.ask("/sign-in")
                assert (status, json.loads(body)["error"]["code"]) == (503, "sign_in_unavailable")
            assert provider.asked["/.well-known/openid-configuration"] == 1


async def test_a_callback_counts_once_and_for_the_browser_that_began(issuer: str) -> None:
    async with (
        console(issuer) as running,
        Person(running) as ada,
        Person(running) as eve,
    ):
        callback = await ada.consent(await ada.begin(), "ada")
        await eve.begin()
        status, _, body = await eve.ask(callback)
        assert (status, json.loads(body)["error"]["code"]) == (400, "sign_in_failed"), "login CSRF"
        login = dict(ada.cookies)
        assert (await ada.ask(callback))[0] == 302
        status, _, body = await ada.ask(callback)
        assert (status, json.loads(body)["error"]["code"]) == (400, "sign_in_failed"), "replayed"
        ada.cookies = login  # as if somebody had copied it in time
        status, headers, body = await ada.ask(callback)
        assert (status, headers["cache-control"]) == (400, "no-store"), "the provider takes a code once"
        code = parse_qs(urlsplit(callback).query)["code"][0]
        assert code not in body


async def test_who_is_nobody_here_is_told_so_and_gets_no_session(issuer: str) -> None:
    async with console(issuer) as running, Person(running) as eve:
        status, _, body = await eve.sign_in("eve")
        assert (status, json.loads(body)["error"]["code"]) == (403, "claims_not_mapped")
        assert eve.cookies == {}


async def test_a_browser_is_shown_a_page_where_a_login_fails_and_a_program_json(issuer: str) -> None:
    html = "text/html,application/xhtml+xml,*/*;q=0.8"
    async with console(issuer) as running, Person(running) as eve:
        status, headers, body = await eve.ask("/sign-in/callback?code=<b>x</b>&state=y", accept=html)
        assert (status, headers["content-type"]) == (400, "text/html; charset=utf-8"), body
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["cache-control"] == "no-store"
        assert "<b>" not in body
        assert 'href="/sign-in"' in body
        status, headers, body = await eve.ask("/sign-in/callback?code=x&state=y", accept="*/*")
        assert (status, json.loads(body)["error"]["code"]) == (400, "sign_in_failed")


async def test_a_login_leads_to_no_other_site() -> None:
    async with scripted_provider() as provider, console(provider.url) as running, Person(running) as eve:
        for page in ("https://evil.example", "//evil.example", "%2F%2Fevil.example", "a%0d%0ab"):
            status, headers, body = await eve.ask(f"/sign-in?page={page}")
            assert (status, json.loads(body)["error"]["code"]) == (400, "unknown_page")
            assert "location" not in headers


async def begun(person: Person) -> tuple[str, dict[str, str]]:
    """The callback of a login that has begun, and what the provider was asked."""
    query = parse_qs(urlsplit(await person.begin()).query)
    asked = {name: values[0] for name, values in query.items()}
    return f"/sign-in/callback?code=c&state={asked['state']}", asked


def answers(provider: ScriptedProvider, status: int = 200, **changed: Any) -> None:
    identity = sign(claims(provider.url, **{"aud": CLIENT, **changed}))
    provider.gives("/token", json.dumps({"id_token": identity}).encode(), status)


@pytest.mark.parametrize(
    "changed",
    [
        {"nonce": None},
        {"nonce": "another"},
        {"aud": "promptly"},
        {"aud": [CLIENT, "b"], "azp": "b"},
        {"iss": "https://evil.example"},
        {"exp": 1_700_000_000},
    ],
    ids=str,
)
async def test_an_identity_token_of_something_else_begins_no_session(changed: dict[str, Any]) -> None:
    async with scripted_provider() as provider, console(provider.url) as running, Person(running) as ada:
        callback, asked = await begun(ada)
        answers(provider, **{"nonce": asked["nonce"], **changed})
        status, _, body = await ada.ask(callback)
        assert (status, json.loads(body)["error"]["code"]) == (401, "invalid_token")
        assert ada.cookies == {}


async def test_a_provider_that_fails_at_the_callback_is_a_clear_error() -> None:
    async with scripted_provider() as provider, console(provider.url) as running, Person(running) as ada:
        for status, body, code in (
            (400, b'{"error":"invalid_grant","id_token":"secret"}', "sign_in_failed"),
            (200, b"<html>secret</html>", "sign_in_failed"),
            (200, b"{}", "sign_in_failed"),
            (200, b'{"id_token":"secret.secret.secret"}', "invalid_token"),
            (200, b" " * (1 << 19), "sign_in_unavailable"),
        ):
            callback, _ = await begun(ada)
            provider.gives("/token", body, status)
            _, _, said = await ada.ask(callback)
            assert json.loads(said)["error"]["code"] == code
            assert "secret" not in said
            assert CLIENT_SECRET not in said


@pytest.mark.parametrize(
    "changed",
    [
        {"authorization_endpoint": "http://evil.example/authorize"},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"token_endpoint": None},
        {"token_endpoint": "ftp://x"},
    ],
    ids=str,
)
async def test_a_configuration_that_leads_elsewhere_is_not_followed(changed: dict[str, Any]) -> None:
    async with scripted_provider() as provider:
        provider.configured(**changed)
        async with console(provider.url) as running, Person(running) as ada:
            status, headers, body = await ada.ask("/sign-in")
            assert (status, json.loads(body)["error"]["code"]) == (503, "sign_in_unavailable")
            assert "location" not in headers
