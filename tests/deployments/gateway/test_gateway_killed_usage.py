"""A gateway that is killed (SIGKILL) loses at most a second of usage; nothing is counted twice."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
from killed_gateway import reachable
from support.accounts import bearer, managed, open_accounts
from support.gateway import chat
from support.graph import CHAT, eventually

from serve_app.usage import UsageQuery

HERE = Path(__file__).parent
KILLED = 2
PERIOD_S = 1.0
SLOW = 3.0
"""Times a second: the loop of a machine that other tests share turns late."""


@contextlib.asynccontextmanager
async def another_process(socket: str):  # type: ignore[no-untyped-def]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(HERE / "killed_gateway.py"),
        socket,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert process.stdout is not None
        url = (await asyncio.wait_for(process.stdout.readline(), 120)).decode().strip()
        yield process, url
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def test_a_killed_gateway_loses_at_most_a_second_of_usage(tmp_path: Path) -> None:
    owner = await open_accounts(tmp_path)
    key, kept = managed("a")
    await owner.make_key(kept)
    sent, ended_at = 0, list[float]()
    with TemporaryDirectory() as short:
        socket = Path(short) / "owner"
        async with reachable(owner, socket):
            for _ in range(KILLED):
                async with (
                    another_process(str(socket)) as (process, url),
                    aiohttp.ClientSession(url, headers=bearer(key)) as http,
                ):

                    async def known(http: aiohttp.ClientSession = http) -> bool:
                        async with http.get("/v1/models") as response:
                            return response.status == 200

                    assert await eventually(known, within_s=60)
                    began = time.monotonic()
                    answered = list[float]()
                    while time.monotonic() - began < PERIOD_S * SLOW + 1:
                        sent += 1
                        async with http.post(CHAT, json=chat(f"q{sent}")) as response:
                            assert response.status == 200
                            await response.read()
                        answered.append(time.monotonic())
                    process.kill()
                    killed = time.monotonic()
                    await process.wait()
                    ended_at += [at - killed for at in answered]
    total = (await owner.usage(UsageQuery(by=()))).total
    await owner.close()
    surely = sum(at < -PERIOD_S * SLOW for at in ended_at)
    assert surely > 0
    assert surely <= total.requests <= sent
    assert total.tokens_out > total.requests
