"""The console over HTTP: who gets which page, with which headers, and how large it is."""

from __future__ import annotations

import gzip
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.gateway import SimSettings, gateway

from deployments.gateway.endpoints.console import FOLDER, Console
from deployments.gateway.request.exchange import Exchange
from serve_app import console

BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8", "accept-encoding": "gzip, deflate, br"}
QUICK = SimSettings(itl_ms=0, tokens=4)
MOST_BYTES = 200_000
MOST_REQUESTS = 6


async def test_a_browser_gets_the_console_at_the_root_and_a_program_a_description() -> None:
    async with gateway(QUICK) as running:
        async with running.http.get("/", headers=BROWSER) as response:
            assert response.content_type == "text/html"
            assert "<script" in await response.text()
            assert response.headers["vary"] == "accept, accept-encoding"
        async with running.http.get("/", headers={"accept": "*/*"}) as response:
            assert response.status == 200
            said = await response.json()
        assert (said["name"], said["console"], said["api"]) == ("Promptly", "/console", "/v1")


@pytest.mark.parametrize("path", ["/", "/console", "/console/"])
async def test_the_page_carries_headers_that_keep_it_to_itself(path: str) -> None:
    async with gateway(QUICK) as running, running.http.get(path, headers=BROWSER) as response:
        assert response.status == 200
        assert response.headers["content-security-policy"] == console.POLICY
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["x-frame-options"] == "DENY"
        assert response.headers["referrer-policy"] == "no-referrer"
        assert "set-cookie" not in response.headers


async def test_all_of_the_console_is_few_small_requests() -> None:
    async with gateway(QUICK) as running:
        paths, transferred = ["/console"], 0
        async with running.http.get("/console", headers=BROWSER) as response:
            paths += re.findall(r"(?:src|href)=\"(/[^\"]+\.(?:js|css))\"", await response.text())
        for path in paths:
            async with running.http.get(path, headers=BROWSER) as response:
                assert response.headers["content-encoding"] == "gzip"
                assert response.headers["x-content-type-options"] == "nosniff"
                transferred += int(response.headers["content-length"])
                tag = response.headers["etag"]
            async with running.http.get(path, headers=BROWSER | {"if-none-match": tag}) as response:
                assert response.status == 304
                assert await response.read() == b""
        assert len(paths) <= MOST_REQUESTS - 2  # the names of the models, and whether all are ready
        assert transferred <= MOST_BYTES


async def test_a_client_that_takes_no_gzip_gets_the_same_file() -> None:
    async with gateway(QUICK) as running:
        files = []
        for encoding in ("identity", "gzip"):
            headers = {"accept-encoding": encoding}
            async with running.http.request("GET", "/console/console.css", headers=headers) as response:
                assert response.headers["vary"] == "accept-encoding"
                files.append(await response.read())
        assert files[0] == files[1] != gzip.compress(files[0])


async def test_no_key_opens_the_page_and_the_page_holds_no_secret() -> None:
    async with gateway(QUICK, tenants=("a",)) as running:
        texts = []
        for path in ("/console", *(f"/console/{name}" for name in console.FILES)):
            async with running.http.get(path) as response:
                assert response.status == 200
                texts.append(await response.text())
        for key in running.keys.values():
            assert not any(key in text for text in texts)
        async with running.http.get("/v1/models") as response:
            assert response.status == 401


@pytest.mark.parametrize("path", ["/console/none.js", "/console/..%2Findex.html", "/console/vendor/uplot"])
async def test_no_other_file_is_served(path: str) -> None:
    async with gateway(QUICK) as running, running.http.get(path) as response:
        assert response.status == 404
        assert (await response.json())["error"]["code"] == "not_found"


async def test_a_console_that_is_turned_off_is_not_there() -> None:
    async with gateway(QUICK, gateway={"console": False}) as running:
        for path in ("/console", "/console/console.js"):
            async with running.http.get(path, headers=BROWSER) as response:
                assert response.status == 404
                assert (await response.json())["error"]["code"] == "console_off"
        async with running.http.get("/", headers=BROWSER) as response:
            assert "console" not in await response.json()


async def test_a_page_of_another_site_may_not_load_it() -> None:
    async with gateway(QUICK) as running:
        foreign = {**BROWSER, "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
        async with running.http.get("/console", headers=foreign | {"sec-fetch-dest": "iframe"}) as response:
            assert response.status == 403
        async with running.http.get("/console", headers=foreign | {"sec-fetch-dest": "document"}) as response:
            assert response.status == 200
        async with running.http.get("/console", headers={**BROWSER, "host": "evil.example"}) as response:
            assert response.status == 403


def for_console() -> Exchange:
    async def receive() -> dict[str, Any]:
        raise AssertionError("it has no body")

    async def send(message: Any) -> None:
        pass

    return Exchange(
        {"type": "http", "method": "GET", "path": "/console/console.js", "headers": []}, receive, send
    )


async def test_files_that_could_not_be_read_once_are_read_again(tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path / "files")
    script = tmp_path / "files" / "base.js"
    text = script.read_bytes()
    script.unlink()  # as where no file descriptor is free
    served = Console("1", enabled=True, folder=tmp_path / "files")
    with pytest.raises(FileNotFoundError):
        await served.file(for_console())
    script.write_bytes(text)
    exchange = for_console()
    await served.file(exchange)
    assert exchange.status == 200
