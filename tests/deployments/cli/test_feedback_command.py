"""``promptly feedback`` against a running gateway."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from support.feedback import feedback_handle
from support.gateway import Running, SimSettings, gateway
from support.graph import ADMIN_TOKEN

from deployments.cli.main import main

QUICK = SimSettings(itl_ms=0, tokens=2)
ASKED = [{"role": "user", "content": "the capital of France?"}]


@pytest.fixture(autouse=True)
def _token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMPTLY_ADMIN_TOKEN", ADMIN_TOKEN)


async def said(running: Running, **what: Any) -> None:
    request_id = uuid4().hex
    await running.post("the capital of France?", {"x-request-id": request_id})
    body = {"request_id": request_id, **what}
    assert (await running.send(body, "/v1/feedback")).status == 200


async def command(running: Running, *arguments: str) -> int:
    return await asyncio.to_thread(main, ["feedback", *arguments, "--endpoint", running.url])


async def test_corrections_become_a_suite_in_a_file_of_the_users_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suite = tmp_path / "suite.json"
    async with (
        feedback_handle(tmp_path / "kept") as handle,
        gateway(QUICK, handles={"feedback": handle}, feedback={}) as running,
    ):
        assert await command(running, "export", "--suite", str(suite)) == 1
        assert "nothing is written" in capsys.readouterr().err
        assert not suite.exists()
        await said(running, score=0, correction="Paris", messages=ASKED)
        await said(running, correction="Paris, of course")
        assert await command(running, "export", "--suite", str(suite), "--scorer", "contains") == 0
        output = capsys.readouterr()
        assert "1 cases" in output.out
        assert "1 corrections are left out" in output.err
    (case,) = json.loads(suite.read_text())["cases"]
    assert (case["messages"], case["expected"]) == (ASKED, "Paris")
    assert suite.stat().st_mode & 0o077 == 0


async def test_what_was_said_is_listed_and_erased(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with (
        feedback_handle(tmp_path / "kept") as handle,
        gateway(QUICK, handles={"feedback": handle}, feedback={}) as running,
    ):
        await said(running, score=0, text="moves\x1b[2J the cursor")
        await said(running, score=1)
        assert await command(running, "list", "--negative") == 0
        listed = capsys.readouterr().out
        assert listed.count("\n") == 1
        assert "\x1b" not in listed
        assert await command(running, "erase", "--tenant", "default") == 0
        assert "4 rows are erased" in capsys.readouterr().out
        assert await command(running, "list") == 0
        assert capsys.readouterr().out.strip() == ""
