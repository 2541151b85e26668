"""Feedback, with Serve's own processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest
from support.graph import AS_ADMIN, CHAT, Graph, chat, eventually

SAY = "/v1/feedback"


@pytest.fixture(scope="module")
def judged(deploy_ready: Callable[..., Graph], tmp_path_factory: pytest.TempPathFactory) -> Graph:
    folder: Path = tmp_path_factory.mktemp("feedback")
    return deploy_ready("judged", {"feedback": {"path": str(folder), "min_free_disk_bytes": 0}})


def owners() -> set[int]:
    """Process ids of the owner's replica."""
    found = set()
    for process in psutil.Process().children(recursive=True):
        try:
            if "ServeReplica:judged:Feedback" in " ".join(process.cmdline()):
                found.add(process.pid)
        except psutil.NoSuchProcess:
            continue
    return found


async def test_what_is_said_outlives_the_process_that_keeps_it(
    http: aiohttp.ClientSession, judged: Graph
) -> None:
    async def said(**what: Any) -> bool:
        async with http.post(judged.url + CHAT, json=chat("say hi")) as response:
            assert response.status == 200
            request_id = response.headers["x-request-id"]
        async with http.post(judged.url + SAY, json={"request_id": request_id, **what}) as response:
            assert response.status in (200, 503), await response.text()
            return response.status == 200

    assert await said(score=0.0, text="no")
    (before,) = owners()
    psutil.Process(before).kill()

    async def again() -> bool:
        return await said(score=1.0)

    assert await eventually(again, within_s=60)
    assert owners() != {before}
    async with http.get(f"{judged.url}/admin/feedback", headers=AS_ADMIN) as response:
        scores = [each["score"] for each in (await response.json())["feedback"]]
    assert scores[0] == 1.0
    assert scores[-1] == 0.0
