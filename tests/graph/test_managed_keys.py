"""Keys that are made while the application runs, with Serve's own processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import aiohttp
import psutil
import pytest
from support.graph import AS_ADMIN, CHAT, Graph, chat, eventually

KEYS = "/admin/keys"


@pytest.fixture(scope="module")
def managed(deploy_ready: Callable[..., Graph], tmp_path_factory: pytest.TempPathFactory) -> Graph:
    path: Path = tmp_path_factory.mktemp("accounts")
    accounts = {"path": str(path), "min_free_disk_bytes": 0}
    return deploy_ready("managed", {"auth": {"accounts": True}, "accounts": accounts})


def owners() -> set[int]:
    """Process ids of the owner's replica."""
    found = set()
    for process in psutil.Process().children(recursive=True):
        try:
            if "ServeReplica:managed:Accounts" in " ".join(process.cmdline()):
                found.add(process.pid)
        except psutil.NoSuchProcess:
            continue
    return found


async def test_a_key_outlives_the_process_that_keeps_it(http: aiohttp.ClientSession, managed: Graph) -> None:
    async def status(key: str) -> int:
        headers = {"authorization": f"Bearer {key}"}
        async with http.post(managed.url + CHAT, json=chat("say hi"), headers=headers) as response:
            return response.status

    async def made() -> dict[str, str] | None:
        async with http.post(managed.url + KEYS, json={"tenant": "acme"}, headers=AS_ADMIN) as response:
            answer: dict[str, str] = await response.json()
            assert response.status in (201, 503), answer
            return answer if response.status == 201 else None

    first = await made()
    assert first is not None
    assert await status(first["key"]) == 200
    (before,) = owners()
    psutil.Process(before).kill()
    assert await status(first["key"]) == 200
    seconds = []

    async def again() -> bool:
        answer = await made()
        seconds.extend([] if answer is None else [answer])
        return bool(seconds)

    assert await eventually(again, within_s=60)
    assert owners() != {before}
    async with http.get(managed.url + KEYS, headers=AS_ADMIN) as response:
        listed = {key["id"] for key in (await response.json())["keys"]}
    assert listed >= {first["id"], seconds[0]["id"]}
    async with http.delete(f"{managed.url}{KEYS}/{first['id']}", headers=AS_ADMIN) as response:
        assert response.status == 200

    async def refused() -> bool:
        return await status(first["key"]) == 401

    assert await eventually(refused, within_s=10)
