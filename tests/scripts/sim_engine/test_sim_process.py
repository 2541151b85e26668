"""The scripted engine as a process of its own."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.load import Client, Request
from benchmarks.peers.endpoint import SCRIPTS
from support.sim import (
    LIMIT_S,
    TEXT,
    open_stream,
    reset_of,
)


@contextmanager
def process(folder: Path, *flags: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """The engine as a process, and its URL."""
    ready = folder / "ready.json"
    command = [sys.executable, "-m", "sim_engine", "--ready-file", str(ready), *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=SCRIPTS) as started:
        try:
            assert started.stdout is not None
            url = started.stdout.readline().decode().strip()
            assert json.loads(ready.read_text()) == {"url": url, "pid": started.pid}
            yield started, url
        finally:
            started.kill()


async def test_a_process_takes_its_settings_and_faults_as_flags(tmp_path: Path) -> None:
    body = json.dumps({"model": "m", "prompt": "a", "stream": True}).encode()
    flags = ("--itl-ms", "1", "--tokens", "3", "--model", "m", "--faults", "status=500,times=1")
    with process(tmp_path, *flags) as (started, url):
        async with Client(url, LIMIT_S) as client:
            samples = [await client.send(Request(TEXT, body)) for _ in range(2)]
        assert [(sample.status, sample.tokens) for sample in samples] == [(500, 0), (200, 3)]
        started.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(started.wait, LIMIT_S) == 0


async def test_a_process_that_is_told_to_die_resets_its_clients_and_fails(tmp_path: Path) -> None:
    with process(tmp_path) as (started, url):
        reader, writer = await open_stream(url, "hang_after=0")
        await reader.readuntil(b"\r\n\r\n")
        async with Client(url, LIMIT_S) as client:
            assert (await client.send(Request("/sim/die", b"{}"))).error == "cut"
        await reset_of(reader, writer)
        assert await asyncio.to_thread(started.wait, LIMIT_S) == 1
