"""Images that a chat names by URL: fetched by the gateway, from public addresses only."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from local_cache import local_cache
from PIL import Image
from scripted_member import stall
from support.gateway import Answered, Running, SimSettings, gateway
from support.graph import CHAT

from serve_app.media.addresses import is_public

SEES = SimSettings(itl_ms=0, tokens=4, keep_bodies=16)


def picture(colour: str = "red", size: int = 8) -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (size, size), colour).save(content, "PNG")
    return content.getvalue()


def noise() -> bytes:
    """A picture that does not get smaller by compression."""
    content = io.BytesIO()
    Image.effect_noise((400, 400), 99).save(content, "PNG")
    return content.getvalue()


def held(data: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


class Pictures:
    """A web server with pictures. ``asked``: the paths of the requests."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.most_at_once = 0
        self.silent = asyncio.Event()
        self.url = ""
        self._now = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path)
        self._now += 1
        self.most_at_once = max(self.most_at_once, self._now)
        try:
            await asyncio.sleep(0)
            return await self._answer(request)
        finally:
            self._now -= 1

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        kind, _, rest = request.path.removeprefix("/").partition("/")
        if kind == "to":
            raise web.HTTPFound(rest if ":" in rest else f"/{rest}")
        if kind == "stall":
            self.silent.set()
            await stall()
        if kind == "missing":
            raise web.HTTPNotFound
        if kind == "text":
            return web.Response(body=b"secret", content_type="image/png")
        if kind == "zip":
            return web.Response(body=b"\x1f\x8b" + bytes(20), headers={"content-encoding": "gzip"})
        if kind == "noise":
            return web.Response(body=noise())
        return web.Response(body=picture(rest or "red"), content_type="text/plain")


@asynccontextmanager
async def seeing(
    *, public: Callable[[str], bool] = lambda _: True, handles: Any = None, **args: Any
) -> AsyncIterator[tuple[Running, Pictures]]:
    """``public`` stands for the judgement of addresses: the pictures are on loopback."""
    pictures = Pictures()
    app = web.Application()
    app.router.add_get("/{path:.*}", pictures.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        pictures.url = f"http://localhost:{runner.addresses[0][1]}"
        media = {"allowed_domains": ["localhost", "127.0.0.1"], **args.pop("media", {})}
        handles = {"is_public": public, **(handles or {})}
        async with gateway(SEES, handles=handles, media=media, **args) as running:
            yield running, pictures
    finally:
        await runner.cleanup()


async def ask(running: Running, *urls: str, text: str = "What is it?", tenant: str | None = None) -> Answered:
    parts = [{"type": "image_url", "image_url": {"url": url, "detail": "low"}} for url in urls]
    return await running.send(
        {"model": "sim", "messages": [{"role": "user", "content": [{"type": "text", "text": text}, *parts]}]},
        headers=None if tenant is None else running.headers(tenant),
    )


def reached(running: Running) -> list[str]:
    """The images that the engine was sent with the newest request."""
    content = json.loads(running.engines[0].stats().seen[-1]["body"])["messages"][0]["content"]
    assert all(part["image_url"]["detail"] == "low" for part in content[1:])
    return [part["image_url"]["url"] for part in content[1:]]


async def test_the_engine_gets_the_picture_itself() -> None:
    async with seeing() as (running, pictures):
        urls = [f"{pictures.url}/a/red", f"{pictures.url}/to/a/blue", held(picture("green"))]
        assert (await ask(running, *urls)).status == 200
        assert reached(running) == [held(picture(colour)) for colour in ("red", "blue", "green")]
        assert sorted(pictures.asked) == ["/a/blue", "/a/red", "/to/a/blue"]


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]", "[::1]"]
)
async def test_no_inside_address_is_asked_however_it_is_written(host: str) -> None:
    async with seeing(public=is_public, media={"allowed_domains": ["*"]}) as (running, pictures):
        port = pictures.url.rpartition(":")[2]
        answer = await ask(running, f"http://{host}:{port}/a/red")
        assert (answer.status, answer.error["code"]) == (400, "image_not_fetched")
        assert "cannot be fetched" in answer.error["message"]
        assert answer.error["param"] == "messages[0].content[1].image_url.url"
        assert (pictures.asked, running.requests()) == ([], [0])


async def test_a_redirect_to_an_inside_address_is_not_followed() -> None:
    judged: list[str] = []

    def first_only(address: str) -> bool:
        judged.append(address)
        return len(judged) == 1

    async with seeing(public=first_only) as (running, pictures):
        port = pictures.url.rpartition(":")[2]
        answer = await ask(running, f"http://127.0.0.1:{port}/to/{pictures.url}/a/red")
        assert (answer.status, answer.error["code"]) == (400, "image_not_fetched")
        assert pictures.asked == [f"/to/{pictures.url}/a/red"]


async def test_the_connection_goes_to_the_address_that_was_judged() -> None:
    judged: list[str] = []

    def note(address: str) -> bool:
        judged.append(address)
        return True

    async with seeing(public=note) as (running, pictures):
        assert (await ask(running, f"{pictures.url}/a/red")).status == 200
    assert judged.count("127.0.0.1") == 1


@pytest.mark.parametrize(
    ("path", "code", "says"),
    [
        ("/missing", "image_not_fetched", "404"),
        ("/text", "invalid_image", "no PNG, JPEG, WebP or GIF"),
        ("/zip", "invalid_image", "no PNG"),
        ("/to/to/to/to/a/red", "image_not_fetched", "redirects"),
        ("/to/file:///etc/passwd", "image_not_fetched", "http"),
        ("/stall", "image_not_fetched", "media.fetch_timeout_s"),
        ("/to/http://elsewhere.example/x", "image_not_allowed", "elsewhere.example"),
    ],
)
async def test_what_is_no_picture_is_refused_by_name(path: str, code: str, says: str) -> None:
    media = {"fetch_timeout_s": 0.5 if path == "/stall" else 10.0}
    async with seeing(media=media) as (running, pictures):
        answer = await ask(running, f"{pictures.url}{path}")
        assert (answer.status, answer.error["code"]) == (400, code), answer.body
        assert says in answer.error["message"]
        assert b"secret" not in answer.body
        assert running.requests() == [0]


@pytest.mark.parametrize(
    "media", [{"max_image_bytes": 1024}, {"max_fetched_bytes": 1024}, {"max_image_pixels": 100_000}]
)
async def test_a_picture_has_bounds(media: dict[str, int]) -> None:
    async with seeing(media=media) as (running, pictures):
        answer = await ask(running, f"{pictures.url}/noise")
        assert (answer.status, answer.error["code"]) == (400, "image_too_large")
        assert f"media.{next(iter(media))}" in answer.error["message"]


async def test_without_allowed_hosts_nothing_is_fetched_and_held_images_are_checked() -> None:
    async with seeing(media={"allowed_domains": []}) as (running, pictures):
        url = f"{pictures.url}/a/red"
        assert (await ask(running, url)).status == 200
        assert reached(running) == [url], "the engine refuses it, or knows the host"
        assert (await ask(running, "data:image/png;base64,AAAA")).error["code"] == "invalid_image"
        assert (await ask(running, *[held(picture())] * 33)).error["code"] == "too_many_images"
        assert pictures.asked == []


NO_PICTURE = "data:image/png;base64,AAAA"
HIDDEN = json.dumps(NO_PICTURE).replace("d", "\\u0064", 1)
EVASIONS = {
    "escapes in the names": (
        CHAT,
        f'{{"type":"image\\u005furl","image\\u005furl":{{"url":"{NO_PICTURE}"}}}}',
    ),
    "escapes in the address": (CHAT, f'{{"type":"image_url","image_url":{{"url":{HIDDEN}}}}}'),
    "capitals": (CHAT, '{"type":"image_url","image_url":{"url":"DATA:image/png;base64,AAAA"}}'),
    "no type": (CHAT, f'{{"image_url":{{"url":"{NO_PICTURE}"}}}}'),
    "a type that is null": (CHAT, f'{{"type":null,"image_url":"{NO_PICTURE}"}}'),
    "the other dialect's type": (CHAT, f'{{"type":"input_image","image_url":"{NO_PICTURE}"}}'),
    "a name for engines": (CHAT, f'{{"type":"text","uuid":"u","image_url":"{NO_PICTURE}"}}'),
    "tokens": ("/tokenize", f'{{"type":"image_url","image_url":{{"url":"{NO_PICTURE}"}}}}'),
    "tokens, by the other name": ("/v1/tokenize", f'{{"image_url":"{NO_PICTURE}"}}'),
    "messages": (
        "/v1/messages",
        '{"type":"image","source":{"type":"url","url":"Data:image/png;base64,AAAA"}}',
    ),
}


@pytest.mark.parametrize("way", EVASIONS)
async def test_no_way_of_writing_hides_an_image(way: str) -> None:
    path, part = EVASIONS[way]
    body = f'{{"model":"sim","max_tokens":9,"messages":[{{"role":"user","content":[{part}]}}]}}'
    headers = {"content-type": "application/json"}
    async with (
        seeing(media={"allowed_domains": []}, upstream={"kind": "vllm"}) as (running, _),
        running.http.post(path, data=body, headers=headers) as response,
    ):
        error = json.loads(await response.read())["error"]
        assert response.status == 400, error
        assert "image" in error["message"]
        assert running.requests() == [0]


@pytest.mark.parametrize(
    "part", [{}, {"type": "input_image"}, {"type": "image_url", "detail": "low"}], ids=str
)
async def test_an_image_is_fetched_in_every_form_that_engines_take(part: dict[str, str]) -> None:
    async with seeing() as (running, pictures):
        is_object = part.get("type") == "image_url"

        def with_url(url: str) -> dict[str, Any]:
            return part | {"image_url": {"url": url} if is_object else url}

        sent = with_url(f"{pictures.url}/a/red")
        answer = await running.send({"model": "sim", "messages": [{"role": "user", "content": [sent]}]})
        assert answer.status == 200, answer.body
        body = json.loads(running.engines[0].stats().seen[-1]["body"])
        assert body["messages"][0]["content"] == [with_url(held(picture()))]


@pytest.mark.parametrize(
    ("model", "paths"), [("unknown", ["/v1/chat/completions"]), ("sim", ["/v1/embeddings"])]
)
async def test_nothing_is_fetched_for_a_model_that_does_not_answer(model: str, paths: list[str]) -> None:
    async with seeing(upstream={"paths": paths}) as (running, pictures):
        part = {"type": "image_url", "image_url": {"url": f"{pictures.url}/a/red"}}
        messages = [{"role": "user", "content": [part]}]
        assert (await running.send({"model": model, "messages": messages})).status == 404
        assert pictures.asked == []


async def test_the_same_picture_is_the_same_question_wherever_it_lies(tmp_path: Path) -> None:
    async with (
        local_cache(tmp_path) as cache,
        seeing(handles=cache.handles, **cache.args) as (running, pictures),
    ):
        asked = [f"{pictures.url}/{path}" for path in ("a/red", "b/red", "a/blue")]
        asked.insert(2, held(picture("red")))
        tiers = [(await ask(running, url)).headers["x-cache"] for url in asked]
        assert tiers == ["miss", "exact", "exact", "miss"]
        other = await ask(running, held(picture("red")), text="What colour is it?")
        assert other.headers["x-cache"] == "miss", "no near answer to a picture"
        assert running.requests() == [3]


async def test_many_are_fetched_at_once_but_no_more_than_allowed() -> None:
    async with seeing(media={"max_fetches": 2}) as (running, pictures):
        assert (await ask(running, *[f"{pictures.url}/a/red"] * 6)).status == 200
    assert 1 <= pictures.most_at_once <= 2
    assert len(pictures.asked) == 6


async def test_fetched_images_count_among_the_bytes_that_their_tenant_holds() -> None:
    async with seeing(limits={"max_held_bytes_per_tenant": 20_000}) as (running, pictures):
        small = await ask(running, f"{pictures.url}/png/red")
        assert small.status == 200
        large = await ask(running, f"{pictures.url}/noise")
        assert large.status == 429
        assert "limits.max_held_bytes_per_tenant" in large.error["message"]


async def test_one_tenants_silent_servers_keep_no_other_tenants_pictures_out() -> None:
    media = {"max_fetches": 4, "max_fetches_per_tenant": 2, "fetch_timeout_s": 2.0}
    async with seeing(media=media, tenants=["a", "b"]) as (running, pictures):
        silent = [
            asyncio.create_task(ask(running, *[f"{pictures.url}/stall"] * 2, tenant="a")) for _ in range(3)
        ]
        await pictures.silent.wait()
        answer = await ask(running, *[f"{pictures.url}/a/red"] * 4, tenant="b")
        assert answer.status == 200, answer.body
        refused = {(each.status, each.error["code"]) for each in await asyncio.gather(*silent)}
        assert (400, "image_not_fetched") in refused
