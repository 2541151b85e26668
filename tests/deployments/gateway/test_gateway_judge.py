"""A judge grades some captured answers, on idle engines only, and no request waits for it."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from scripted_member import Member, listening
from support.feedback import feedback_handle
from support.gateway import MODEL, Running, gateway, meanwhile
from support.graph import eventually
from support.meter import Meter

from deployments.platform.sealing import KEY_BYTES
from serve_app.errors import SettingsError
from serve_app.feedback.judgement import INSTRUCTION
from serve_app.monitoring.metrics import JUDGED, JUDGED_POINTS, JUDGEMENTS
from serve_app.settings import parse_args

SLOWLY = "slowly"


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPTURE_KEY", base64.b64encode(os.urandom(KEY_BYTES)).decode())


class Judging:
    """Answers clients and the judge's questions; a client's question ``SLOWLY`` waits."""

    def __init__(self, reply: str, status: int = 200) -> None:
        self.reply = reply
        self.status = status
        self.go_on = asyncio.Event()
        self.judged: list[str] = []
        self.member = Member(self._answer)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        fields = json.loads(await request.read())
        first, last = fields["messages"][0]["content"], fields["messages"][-1]["content"]
        if first == INSTRUCTION:
            self.judged.append(last)
            if self.status != 200:
                return web.json_response({"error": {"message": "no"}}, status=self.status)
            return web.json_response(completion(self.reply))
        if last == SLOWLY:
            await self.go_on.wait()
        return web.json_response(completion("Paris"))


def completion(text: str) -> dict[str, object]:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
    return {"id": "x", "object": "chat.completion", "model": MODEL, "choices": [choice], "usage": usage}


@asynccontextmanager
async def judging(
    folder: Path, engine: Judging, experiments: Sequence[object] = (), **judge: object
) -> AsyncIterator[tuple[Running, Meter]]:
    asked = {"model": MODEL, "share": 1.0, "max_per_minute": 6000.0, **judge}
    capture = {"tenants": {"default": 1.0}, "judge": asked}
    settings = {"encryption_key_env": "CAPTURE_KEY", "capture": capture}
    meter = Meter()
    async with (
        listening(engine.member),
        feedback_handle(folder, **settings) as handle,
        gateway(
            others=[engine.member.upstream()],
            handles={"feedback": handle},
            feedback=settings,
            experiments=list(experiments),
            meter=meter,
        ) as running,
    ):
        yield running, meter


async def until(meter: Meter, kind: str) -> None:
    async def counted() -> bool:
        return meter.values.get(JUDGEMENTS.name, {}).get((kind,), 0) >= 1

    assert await eventually(counted, within_s=30), meter.values.get(JUDGEMENTS.name)


async def test_an_answer_is_graded_for_the_model_that_gave_it(tmp_path: Path) -> None:
    engine = Judging("7")
    async with judging(tmp_path, engine) as (running, meter):
        await running.post("the capital?")
        await until(meter, "scored")
        assert meter.values[JUDGED.name] == {(MODEL,): 1}
        assert meter.values[JUDGED_POINTS.name] == {(MODEL,): 700}
        (asked,) = engine.judged
        assert "the capital?" in asked
        assert "Paris" in asked


async def test_what_is_graded_counts_for_the_arm_of_its_experiment(tmp_path: Path) -> None:
    arm = {"name": "cool", "percent": 100.0, "settings": {"temperature": 0.0}}
    engine = Judging("7")
    async with judging(tmp_path, engine, [{"name": "heat", "arms": [arm]}]) as (running, _):
        for number in range(3):
            await running.post("the capital?", {"x-session-id": f"s{number % 2}"})

        async def judged() -> dict[str, object]:
            (shown,) = (await running.get("/admin/experiments"))["experiments"]
            return {each["name"]: each.get("judged") for each in shown["arms"]}

        async def counted() -> bool:
            return ((await judged())["cool"] or {}) == {"answers": 3, "sessions": 2, "score": 0.7}

        assert await eventually(counted, within_s=30), await judged()
        assert (await judged())["control"] is None

        async def named() -> bool:
            captures = (await running.get("/admin/captures"))["captures"]
            return [(each["request"] or {}).get("experiment") for each in captures] == ["heat=cool"] * 3

        assert await eventually(named, within_s=20)


@pytest.mark.parametrize(("reply", "status", "kind"), [("splendid", 200, "unreadable"), ("7", 400, "failed")])
async def test_a_judge_that_answers_nonsense_or_fails_costs_only_the_judgement(
    tmp_path: Path, reply: str, status: int, kind: str
) -> None:
    async with judging(tmp_path, Judging(reply, status)) as (running, meter):
        assert (await running.post("the capital?")).status == 200
        await until(meter, kind)
        assert JUDGED.name not in meter.values
        assert (await running.post("and now?")).status == 200


async def test_while_its_engine_works_for_a_client_the_judge_waits(tmp_path: Path) -> None:
    engine = Judging("7")
    async with judging(tmp_path, engine) as (running, meter), meanwhile(running.post(SLOWLY)) as slow:

        async def begun() -> bool:
            return len(engine.member.seen) == 1

        assert await eventually(begun, within_s=10)
        await running.post("the capital?")

        async def kept() -> bool:
            return len((await running.get("/admin/captures"))["captures"]) == 1

        assert await eventually(kept, within_s=20)
        await asyncio.sleep(0.5)  # several looks of the judge
        assert engine.judged == []
        engine.go_on.set()
        assert (await slow).status == 200
        await until(meter, "scored")


async def test_what_finds_no_idle_engine_in_time_is_dropped(tmp_path: Path) -> None:
    engine = Judging("7")
    async with (
        judging(tmp_path, engine, max_wait_s=0.3) as (running, meter),
        meanwhile(running.post(SLOWLY)),
    ):

        async def begun() -> bool:
            return len(engine.member.seen) == 1

        assert await eventually(begun, within_s=10)
        await running.post("the capital?")
        await until(meter, "dropped")
        assert engine.judged == []


def test_a_judge_that_is_not_served_is_refused_at_the_start() -> None:
    capture = {"tenants": {"default": 1.0}, "judge": {"model": "nobody"}}
    upstream = {"name": "u", "url": "http://127.0.0.1:1/v1"}
    settings = {
        "models": [{"id": "m", "upstreams": [upstream]}],
        "feedback": {"encryption_key_env": "KEY", "capture": capture},
    }
    with pytest.raises(SettingsError, match=r"feedback\.capture\.judge\.model.*nobody"):
        parse_args(settings, source="test")
