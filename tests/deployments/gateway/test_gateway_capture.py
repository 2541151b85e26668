"""Requests of the tenants that the settings name are captured with their answers, and serving never waits."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from local_cache import local_cache
from support.feedback import feedback_handle
from support.full_disk import fill, small_disk
from support.gateway import ADMIN, COMPLETIONS, Running, SimSettings, gateway
from support.graph import eventually
from support.handles import LocalHandle
from support.meter import Meter

from deployments.platform.sealing import KEY_BYTES
from serve_app.api.roles import Role
from serve_app.monitoring.metrics import CAPTURE_STOPPED, CAPTURES, REFUSALS, SAMPLED, SAMPLED_CHARS

QUICK = SimSettings(itl_ms=0, tokens=6)
SLOW = SimSettings(itl_ms=20, tokens=40)
SECRET = "the word is mellon"
RIGHTS: dict[str, Any] = {"team": {"role": Role.TENANT_ADMIN}, "viewer": {"role": Role.VIEWER}}


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPTURE_KEY", base64.b64encode(os.urandom(KEY_BYTES)).decode())


def shout(text: str) -> str:
    return text.upper()


def fail(text: str) -> str:
    raise RuntimeError(text)


@asynccontextmanager
async def capturing(
    folder: Path, engine: SimSettings = QUICK, handles: Any = None, args: Any = None, **capture: Any
) -> AsyncIterator[tuple[Running, LocalHandle, Meter]]:
    settings = {
        "encryption_key_env": "CAPTURE_KEY",
        "call_timeout_s": 0.5,
        "capture": {"tenants": {"acme": 1.0, "team": 1.0}, **capture},
    }
    meter = Meter()
    async with (
        feedback_handle(folder, **settings) as handle,
        gateway(
            engine,
            handles={"feedback": handle, **(handles or {})},
            feedback=settings,
            meter=meter,
            tenants=["acme", "other", "team", "viewer"],
            rights=RIGHTS,
            **(args or {}),
        ) as running,
    ):
        yield running, handle, meter


async def captures(running: Running, query: str = "?content=true", tenant: str = ADMIN) -> Any:
    async with running.http.get(f"/admin/captures{query}", headers=running.headers(tenant)) as response:
        return await response.json()


async def until_captured(running: Running, number: int = 1) -> list[Any]:
    async def there() -> bool:
        return len((await captures(running))["captures"]) >= number

    assert await eventually(there, within_s=20)
    found: list[Any] = (await captures(running))["captures"]
    return found


async def until_counted(meter: Meter, kind: str, number: float = 1) -> None:
    async def counted() -> bool:
        return meter.values.get(CAPTURES.name, {}).get((kind,), 0) >= number

    assert await eventually(counted, within_s=20), meter.values.get(CAPTURES.name)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_is_captured_with_its_answer(tmp_path: Path, stream: bool) -> None:
    async with capturing(tmp_path) as (running, _, meter):
        given = running.headers("acme") | {"x-request-id": uuid4().hex}
        answer = await running.post(SECRET, given, stream=stream)
        (found,) = await until_captured(running)
        assert found["request_id"] == given["x-request-id"]
        assert found["asked"]["messages"] == [{"role": "user", "content": SECRET}]
        assert found["answer"]["text"] == answer.text
        assert found["answer"]["complete"] is True
        assert "cache_salt" not in found["asked"]
        await until_counted(meter, "kept")

        async def known() -> bool:
            return (await captures(running))["captures"][0]["request"] is not None

        assert await eventually(known, within_s=20)


async def test_what_is_captured_is_looked_at_for_drift(tmp_path: Path) -> None:
    async with capturing(tmp_path) as (running, _, meter):
        answer = await running.post(SECRET, running.headers("acme"))

        async def counted() -> bool:
            return meter.values.get(SAMPLED_CHARS.name) == {("sim",): len(answer.text)}

        assert await eventually(counted, within_s=20)
        assert meter.values[SAMPLED.name] == {("sim",): 1}
        assert REFUSALS.name not in meter.values


async def test_a_captured_request_names_its_arm_of_an_experiment(tmp_path: Path) -> None:
    arm = {"name": "cool", "percent": 100.0, "settings": {"temperature": 0.0}}
    args = {"experiments": [{"name": "heat", "arms": [arm]}]}
    async with capturing(tmp_path, args=args) as (running, _, _):
        await running.post(SECRET, running.headers("acme"))

        async def named() -> bool:
            found = (await captures(running))["captures"]
            return [(each["request"] or {}).get("experiment") for each in found] == ["heat=cool"]

        assert await eventually(named, within_s=20), await captures(running)


async def test_other_tenants_and_other_shares_are_not_captured(tmp_path: Path) -> None:
    async with capturing(tmp_path, tenants={"acme": 1.0, "team": 0.0}) as (running, _, _):
        for tenant in ("other", "team", "acme"):
            await running.post(SECRET, running.headers(tenant))
        assert [each["tenant"] for each in await until_captured(running)] == ["acme"]


async def test_completions_and_messages_are_captured_too(tmp_path: Path) -> None:
    async with capturing(tmp_path) as (running, _, _):
        headers = running.headers("acme")
        await running.send({"model": "sim", "prompt": "Speak", "max_tokens": 3}, COMPLETIONS, headers)
        asked = {"model": "sim", "max_tokens": 3, "messages": [{"role": "user", "content": "friend"}]}
        assert (await running.send(asked, "/v1/messages", headers)).status == 200
        first, second = await until_captured(running, 2)
        assert first["asked"]["prompt"] == "Speak"
        assert second["asked"]["messages"][-1]["content"] == "friend"
        assert second["answer"]["text"]


async def test_what_the_cache_answers_is_captured_too(tmp_path: Path, folder: Path) -> None:
    async with (
        local_cache(folder, race=False) as cache,
        capturing(tmp_path, handles=cache.handles, args=cache.args) as (running, _, _),
    ):
        answers = [await running.post(SECRET, running.headers("acme")) for _ in range(2)]
        assert answers[1].headers["x-cache"] == "exact"
        first, second = await until_captured(running, 2)
        assert first["answer"]["text"] == second["answer"]["text"] == answers[1].text


async def test_a_client_that_leaves_is_captured_as_far_as_it_read(tmp_path: Path) -> None:
    async with capturing(tmp_path, SLOW) as (running, _, _):
        async with running.stream(SECRET, running.headers("acme")) as stream:
            for _ in range(3):
                await stream.event()
            stream.leave()
        (found,) = await until_captured(running)
        assert found["answer"]["complete"] is False


async def test_texts_are_redacted_before_they_leave_the_gateway(tmp_path: Path) -> None:
    async with capturing(tmp_path, redact=f"{__name__}:shout") as (running, _, _):
        await running.post(SECRET, running.headers("acme"))
        (found,) = await until_captured(running)
        assert found["asked"]["messages"] == [{"role": "user", "content": SECRET.upper()}]


async def test_what_cannot_be_redacted_is_not_captured_and_not_quoted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with capturing(tmp_path, redact=f"{__name__}:fail") as (running, _, meter):
        assert (await running.post(SECRET, running.headers("acme"))).status == 200
        await until_counted(meter, "unreadable")
        assert (await captures(running))["captures"] == []
        assert SECRET not in caplog.text


async def test_too_large_requests_and_answers_are_left_out(tmp_path: Path) -> None:
    async with capturing(tmp_path, max_entry_bytes=1024) as (running, _, meter):
        assert (await running.post("x" * 2000, running.headers("acme"))).status == 200
        assert (await running.post("y" * 800, running.headers("acme"), stream=True)).status == 200
        await until_counted(meter, "too_large", 2)
        assert (await captures(running))["captures"] == []


async def test_when_the_room_is_used_up_capture_stops_and_serving_does_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with capturing(tmp_path, max_bytes=2048) as (running, _, meter):
        for number in range(8):
            assert (await running.post(f"{number}" * 600, running.headers("acme"))).status == 200
            await asyncio.sleep(0)

        async def stopped() -> bool:
            return meter.values.get(CAPTURE_STOPPED.name) == {(): 1.0}

        assert await eventually(stopped, within_s=20)
        assert (await running.post("goes on", running.headers("acme"))).status == 200
        assert caplog.text.count("no more requests are captured") == 1
        await until_counted(meter, "full")


async def test_while_the_owner_is_away_what_waits_is_bounded(tmp_path: Path) -> None:
    async with capturing(tmp_path, max_waiting_bytes=2048) as (running, handle, meter):
        with handle.failing("capture"):
            for _ in range(6):
                assert (await running.post("x" * 600, running.headers("acme"))).status == 200
            await until_counted(meter, "waiting", 4)


async def test_a_team_reads_and_erases_its_own_and_viewers_nothing(tmp_path: Path) -> None:
    async with capturing(tmp_path) as (running, _, _):
        for tenant in ("acme", "team"):
            await running.post(SECRET, running.headers(tenant))
        await until_captured(running, 2)
        assert [each["tenant"] for each in (await captures(running, "", "team"))["captures"]] == ["team"]
        assert "asked" not in (await captures(running, "", "team"))["captures"][0]
        assert (await captures(running, "?tenant=acme", "team"))["error"]["code"] == "other_tenant"
        for tenant in ("viewer", "acme"):
            assert "error" in await captures(running, "", tenant)
        for query, tenant, status in (("acme", "team", 403), ("", ADMIN, 400), ("team", "team", 200)):
            url = f"/admin/captures?tenant={query}"
            async with running.http.delete(url, headers=running.headers(tenant)) as response:
                assert response.status == status, (query, tenant)
        assert [each["tenant"] for each in (await captures(running))["captures"]] == ["acme"]


async def test_pages_of_captures_have_bounds(tmp_path: Path) -> None:
    async with capturing(tmp_path) as (running, _, _):
        for query in ("?limit=0", "?limit=501", "?after=x", "?content=maybe", "?who=me"):
            assert (await captures(running, query))["error"]["type"] == "invalid_request_error", query


async def test_a_function_that_is_not_there_is_said_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"feedback\.capture\.redact"):
        async with capturing(tmp_path, redact="no_such_module:redact"):
            pass


async def test_on_a_disk_that_is_really_full_serving_goes_on_and_the_rest_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with small_disk(tmp_path / "disk", 8 << 20) as disk:
        async with capturing(disk / "kept") as (running, _, meter):
            headers = running.headers("acme")
            assert (await running.post(SECRET, headers | {"x-request-id": "before"})).status == 200
            await until_captured(running)
            filler = fill(disk, 0)
            for number in range(8):
                assert (await running.post(f"{number}" * 20_000, headers)).status == 200

            async def stopped() -> bool:
                return meter.values.get(CAPTURE_STOPPED.name) == {(): 1.0}

            assert await eventually(stopped, within_s=30)
            assert caplog.text.count("no more requests are captured: the disk is full") == 1
            said = {"request_id": "before", "score": 0.0, "text": "x" * 3000, "correction": "y" * 30_000}
            refused = await running.send(said, "/v1/feedback", headers)
            assert (refused.status, "disk is full" in refused.error["message"]) == (503, True)
            assert len((await captures(running))["captures"]) == 1, "what was kept can be read"
            filler.unlink()
            assert (await running.send(said, "/v1/feedback", headers)).status == 200
