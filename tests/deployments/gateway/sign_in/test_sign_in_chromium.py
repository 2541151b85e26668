"""One whole sign-in in a real browser, at a provider on another site; and pages that would use the session.

Where `chromium` is not installed (`apt-get install chromium`) these are skipped.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from browser import CHROMIUM, chromium
from support.gateway import Running, gateway, serving
from support.identity_provider import free_port, real_provider

from serve_app.request.auth import KeySources

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no `chromium` (Debian: apt-get install chromium)")

USERS: dict[str, dict[str, Any]] = {"ada": {"team": "maths", "groups": ["platform"]}}


@asynccontextmanager
async def console(issuer: str) -> AsyncIterator[tuple[str, Running]]:
    """The address at which browsers see the gateway, which has to be known before it starts."""
    port = free_port()
    url = f"http://localhost:{port}"
    login = {"client_id": "console", "client_secret_env": "SECRET", "url": url}
    rules = {"tenant_claim": "team", "role_claim": "groups", "roles": {"platform": "admin"}}
    oidc = {"issuer": issuer, "audiences": ["promptly"], "console": login, **rules}
    async with (
        gateway(key_sources=KeySources(), client_secret="s3cret", auth={"oidc": oidc}) as running,
        forwarding(port, int(running.url.rpartition(":")[2])),
    ):
        yield url, running


@asynccontextmanager
async def forwarding(port: int, to: int) -> AsyncIterator[None]:
    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, asks = await asyncio.open_connection("127.0.0.1", to)
        await asyncio.gather(pass_on(reader, asks), pass_on(answers, writer), return_exceptions=True)

    server = await asyncio.start_server(connected, "127.0.0.1", port)
    try:
        yield
    finally:
        server.close()


def page_of(html: str) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"text/html")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": html.encode()})

    return app


TEXT = "document.body.innerText"
WHO = "document.querySelector('#who')?.innerText"
ASKS_FOR_SIGN_IN = "document.querySelector('#sign-in') !== null"


@pytest.fixture
def issuer() -> Iterator[str]:
    with real_provider(**USERS) as url:
        yield url


async def test_a_person_signs_in_at_the_provider_and_out_again(tmp_path: Path, issuer: str) -> None:
    async with (
        console(issuer) as (url, _),
        chromium(tmp_path / "profile") as browser,
        browser.page(f"{url}/console#/fleet") as page,
    ):
        await page.ask("Network.setBlockedURLs", urls=["*jsdelivr*"])  # the provider's page asks for a style
        await page.until(ASKS_FOR_SIGN_IN)
        await press(page, "#sign-in")
        await page.until(
            f"location.origin === '{issuer}' && document.querySelector('button[value=ada]') !== null"
        )
        await press(page, "button[value=ada]")
        assert await page.until(WHO) == "ada"
        assert await page.value("location.href") == f"{url}/console#/fleet"
        await page.until(f"{TEXT}.includes('e0')")  # /admin/fleet, by the session
        assert await page.value("document.cookie") == "", "no script can read it"
        assert await page.value("sessionStorage.length") == 0
        refused = [text for text in page.complaints if "Content Security Policy" in text]
        assert refused == []

        await other_pages_get_nothing(page, url)

        await page.go(f"{url}/console#/fleet")
        assert await page.until(WHO) == "ada"
        await press(page, "#sign-out")
        await page.until(ASKS_FOR_SIGN_IN)
        assert await page.value("fetch('/v1/me').then((answer) => answer.status)") == 401


async def press(page: Any, selector: str) -> None:
    """The mouse would wait for an answer of the page that it leaves."""
    await page.until(f"document.querySelector('{selector}') !== null")
    await page.value(f"setTimeout(() => document.querySelector('{selector}').click()) && 0")


async def other_pages_get_nothing(page: Any, url: str) -> None:
    """A page of another port of this host, to which a browser sends even `SameSite=Strict` cookies, and one
    of another site."""
    html = f"<form method=post action='{url}/sign-out'><button id=go>free prizes</button></form>"
    async with serving(page_of(html)) as evil:
        for origin in (evil.replace("127.0.0.1", "localhost"), evil):
            await page.go(origin)
            read = f"fetch('{url}/v1/me', {{credentials: 'include'}}).then(() => 'read', () => 'refused')"
            assert await page.value(read) == "refused"
            blind = {"method": "DELETE", "credentials": "include"}
            sent = f"fetch('{url}/admin/cache?tag=x', {blind}).then(() => 'sent', () => 'refused')"
            assert await page.value(sent) == "refused"
            await press(page, "#go")
            await page.until(f"location.href === '{url}/sign-out'")
            assert "origin_not_allowed" in await page.until(TEXT)
