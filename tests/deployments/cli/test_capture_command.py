"""``promptly capture`` against a running gateway, and a collector."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.collector import collecting
from support.feedback import feedback_handle
from support.gateway import Running, SimSettings, gateway
from support.graph import ADMIN_TOKEN, eventually

from deployments.cli.main import main
from deployments.platform.sealing import KEY_BYTES

QUICK = SimSettings(itl_ms=0, tokens=4)
ASKED = "the word is mellon"


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMPTLY_ADMIN_TOKEN", ADMIN_TOKEN)
    monkeypatch.setenv("CAPTURE_KEY", base64.b64encode(os.urandom(KEY_BYTES)).decode())


@asynccontextmanager
async def captured(folder: Path, number: int = 2) -> AsyncIterator[Running]:
    """A gateway that has captured so many requests."""
    settings = {"encryption_key_env": "CAPTURE_KEY", "capture": {"tenants": {"default": 1.0}}}
    async with (
        feedback_handle(folder, **settings) as handle,
        gateway(QUICK, handles={"feedback": handle}, feedback=settings) as running,
    ):
        for _ in range(number):
            await running.post(ASKED)

        async def there() -> bool:
            found = (await running.get("/admin/captures"))["captures"]
            return len(found) == number and all(each["request"] for each in found)

        assert await eventually(there, within_s=20)
        yield running


async def command(running: Running, *arguments: str) -> int:
    return await asyncio.to_thread(main, ["capture", *arguments, "--endpoint", running.url])


async def test_captures_go_to_a_file_of_the_users_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "yesterday.jsonl"
    async with captured(tmp_path / "kept") as running:
        assert await command(running, "list") == 0
        assert capsys.readouterr().out.count("default") == 2
        assert await command(running, "export", "--file", str(file)) == 0
        assert "2 requests" in capsys.readouterr().out
        assert await command(running, "list", "--experiment", "heat=cool") == 0
        assert capsys.readouterr().out.strip() == "", "no request was in that experiment"
        assert await command(running, "erase", "--tenant", "default") == 0
        assert "2 captures are erased" in capsys.readouterr().out
    first, _ = map(json.loads, file.read_text().splitlines())
    assert first["asked"]["messages"] == [{"role": "user", "content": ASKED}]
    assert file.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("content", [False, True])
async def test_captures_are_sent_as_spans_with_texts_only_on_request(tmp_path: Path, content: bool) -> None:
    with collecting() as collector:
        async with captured(tmp_path) as running:
            flags = ["--content"] if content else []
            url = f"{collector.url}/v1/traces"
            for _ in range(2):
                assert await command(running, "export", "--otlp", url, *flags) == 0
        assert len(collector.spans) == 4
        assert len({span.trace_id for span in collector.spans}) == 2, "the same at every export"
        assert all(span.end_time_unix_nano > span.start_time_unix_nano for span in collector.spans)
        names = {each.key for each in collector.spans[0].attributes}
        assert {"gen_ai.request.model", "gen_ai.usage.output_tokens"} <= names
        assert ("gen_ai.input.messages" in names) is content
        assert (ASKED in str(collector.spans)) is content


async def test_an_end_that_takes_no_spans_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with collecting() as collector:
        collector.status = 400
        async with captured(tmp_path) as running:
            assert await command(running, "export", "--otlp", f"{collector.url}/v1/traces") == 1
        assert "not taken" in capsys.readouterr().err
