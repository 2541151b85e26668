"""A running gateway follows the keys file, and strangers' keys cost it nothing."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from support.gateway import Running, gateway
from support.graph import eventually

from serve_app.request.auth import KeyRecord, load_keys, make_key
from serve_app.settings import KeySettings

KEY, RECORD = make_key("acme")
OTHER_KEY, OTHER_RECORD = make_key("beta")
GIVEN_KEY = "a-key-that-an-operator-chose"


@dataclass(frozen=True)
class Guarded:
    """A gateway whose keys stand in a file."""

    running: Running
    file: Path

    def put(self, *records: KeyRecord) -> None:
        self.file.write_bytes(msgspec.json.encode(records))

    async def status(self, key: str) -> int:
        """What a request with the key is answered."""
        return (await self.running.post("say hello", headers={"authorization": f"Bearer {key}"})).status

    async def until(self, key: str, status: int) -> bool:
        async def so() -> bool:
            return await self.status(key) == status

        return await eventually(so, within_s=3)


@asynccontextmanager
async def guarded(folder: Path) -> AsyncIterator[Guarded]:
    file = folder / "keys.json"
    file.write_bytes(msgspec.json.encode([RECORD]))
    settings = KeySettings(keys_file=str(file), keys_env="KEYS")
    sources = load_keys(settings, {"KEYS": f"ops={GIVEN_KEY}"})
    async with gateway(key_sources=sources) as running:
        yield Guarded(running, file)


async def test_a_key_that_is_added_starts_to_work_and_one_that_is_removed_stops(tmp_path: Path) -> None:
    async with guarded(tmp_path) as guard:
        assert (await guard.status(KEY), await guard.status(OTHER_KEY)) == (200, 401)
        guard.put(RECORD, OTHER_RECORD)
        assert await guard.until(OTHER_KEY, 200)
        assert await guard.status(KEY) == 200
        guard.put(OTHER_RECORD)
        assert await guard.until(KEY, 401)
        assert (await guard.status(OTHER_KEY), await guard.status(GIVEN_KEY)) == (200, 200)
        guard.put()
        assert await guard.until(OTHER_KEY, 401)
        assert await guard.status(GIVEN_KEY) == 200


@pytest.mark.parametrize("broken", ["half-written", "gone"])
async def test_a_broken_file_changes_nothing_and_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    async with guarded(tmp_path) as guard:
        whole = guard.file.read_bytes()

        def said() -> list[str]:
            return [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]

        async def told() -> bool:
            return bool(said())

        with caplog.at_level(logging.ERROR, logger="ray.serve"):
            if broken == "gone":
                guard.file.unlink()
            else:
                guard.file.write_bytes(whole[: len(whole) // 2])
            assert await eventually(told, within_s=3)
            assert await guard.status(KEY) == 200
            guard.file.write_bytes(whole)
            guard.put(OTHER_RECORD)  # the way back is open
            assert await guard.until(OTHER_KEY, 200)
        (line,) = said()
        assert "the keys known so far stay" in line
        assert RECORD.hash not in line
        assert RECORD.salt not in line


async def test_a_bearer_of_twelve_kilobytes_is_an_unknown_key(tmp_path: Path) -> None:
    async with guarded(tmp_path) as guard:
        headers = {"authorization": f"Bearer {'x' * 12_000}"}
        answered = await guard.running.post("say hello", headers=headers)
        assert (answered.status, answered.error["code"]) == (401, "invalid_api_key")
