"""The keys file is looked at often enough for what is promised: a removed key stops within a second."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from deployments.gateway.request.key_watch import KeyWatch
from serve_app.request.auth import KeyRecord, KeySources, load_keys, make_key
from serve_app.settings import KeySettings

PROMISED_S = 1.0
READING_S = 0.4
"""What is left of the promise for a read of the file, and for a gateway that is busy."""

RECORD = make_key("acme")[1]
OTHER_RECORD = make_key("beta")[1]


class Pauses:
    """The watch's pauses, which end when the test says so."""

    def __init__(self) -> None:
        self._began = asyncio.Queue[float]()
        self._ends = asyncio.Semaphore(0)

    async def __call__(self, seconds: float) -> None:
        self._began.put_nowait(seconds)
        await self._ends.acquire()

    async def begun_s(self) -> float:
        """The length of the next pause, when it has begun."""
        async with asyncio.timeout(10):
            return await self._began.get()

    def end(self) -> None:
        self._ends.release()


def put(file: Path, *records: KeyRecord) -> None:
    file.write_bytes(msgspec.json.encode(records))


async def test_after_each_pause_the_file_is_read_and_every_pause_leaves_room_in_the_promised_second(
    tmp_path: Path,
) -> None:
    file = tmp_path / "keys.json"
    put(file, RECORD, OTHER_RECORD)
    heard: list[KeySources] = []
    pauses = Pauses()
    watch = KeyWatch(load_keys(KeySettings(keys_file=str(file)), {}), heard.append, pauses)
    try:
        assert await pauses.begun_s() <= PROMISED_S - READING_S
        for number, known in enumerate([(OTHER_RECORD,), (RECORD, OTHER_RECORD), ()], 1):
            put(file, *known)
            pauses.end()
            assert await pauses.begun_s() <= PROMISED_S - READING_S
            assert (len(heard), heard[-1].in_file) == (number, known)
    finally:
        await watch.stop()


async def test_a_file_that_cannot_be_read_is_looked_at_no_less_often(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    put(file, RECORD)
    heard: list[KeySources] = []
    pauses = Pauses()
    watch = KeyWatch(load_keys(KeySettings(keys_file=str(file)), {}), heard.append, pauses)
    try:
        await pauses.begun_s()
        file.unlink()
        pauses.end()
        assert await pauses.begun_s() <= PROMISED_S - READING_S
        assert not heard
        put(file, OTHER_RECORD)
        pauses.end()
        await pauses.begun_s()
        assert len(heard) == 1
    finally:
        await watch.stop()
