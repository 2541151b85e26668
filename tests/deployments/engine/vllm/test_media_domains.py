"""What vLLM's own code fetches for a request, told what we tell it."""

from __future__ import annotations

import asyncio
import base64
import io
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from PIL import Image
from vllm.multimodal.media import MediaConnector

from deployments.engine.vllm.arguments import engine_arguments
from serve_app.model_store import ModelStore
from serve_app.settings import EngineSettings, ModelSettings


def connector(**engine: Any) -> MediaConnector:
    model = ModelSettings(id="m", source="s", engine=EngineSettings(accelerator="cpu", **engine))
    arguments = engine_arguments(model, ModelStore(Path("unused")))
    assert "allowed_local_media_path" not in arguments
    return MediaConnector(allowed_media_domains=arguments["allowed_media_domains"])


def picture() -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(content, "PNG")
    return content.getvalue()


async def fetched(media: MediaConnector, host: str) -> tuple[bool, list[str]]:
    """Whether an image from a listener on loopback came, and what the listener was asked."""
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(body=picture(), content_type="image/png")

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://{host}:{runner.addresses[0][1]}/a.png"
        try:
            await media.fetch_image_async(url)
        except ValueError:
            return False, asked
        return True, asked
    finally:
        await media.connection.close() if hasattr(media.connection, "close") else None
        await runner.cleanup()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST", "[::ffff:127.0.0.1]", "2130706433"])
async def test_no_address_is_fetched_unless_its_host_is_named(host: str) -> None:
    assert await fetched(connector(), host) == (False, [])
    assert await fetched(connector(allowed_media_domains=["images.example.com"]), host) == (False, [])


async def test_a_host_that_is_named_is_fetched_from() -> None:
    assert await fetched(connector(allowed_media_domains=["127.0.0.1"]), "127.0.0.1") == (True, ["/a.png"])


async def test_data_urls_go_on_working() -> None:
    url = "data:image/png;base64," + base64.b64encode(picture()).decode()
    assert (await connector().fetch_image_async(url)) is not None


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://127.0.0.1/a", "/etc/hostname"])
async def test_nothing_else_is_read(url: str) -> None:
    with pytest.raises((ValueError, RuntimeError)):
        await asyncio.wait_for(connector().fetch_image_async(url), 5)


@pytest.mark.parametrize(
    "host", ["", "http://a.example", "a.example/x", "A.example", "a.example:80", "*.a.com"]
)
def test_what_is_no_host_is_refused_by_name(host: str) -> None:
    with pytest.raises(ValueError, match="expected a host such as"):
        EngineSettings(allowed_media_domains=(host,))
