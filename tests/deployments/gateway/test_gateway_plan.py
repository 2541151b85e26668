"""``/admin/plan`` over HTTP: who may ask, what is refused, and that streams go on meanwhile."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from support.gateway import SimSettings, gateway

from serve_app.errors import SettingsError
from serve_app.planning.question import Question
from serve_app.settings import Settings

QUICK = SimSettings(itl_ms=0, tokens=4)
PLAN = "/admin/plan"


async def test_the_plan_is_of_the_running_settings_and_the_question() -> None:
    asked: list[Question] = []

    def planner(settings: Settings, question: Question) -> dict[str, Any]:
        asked.append(question)
        return {"models": [], "others": [model.id for model in settings.models]}

    async with gateway(QUICK, handles={"planner": planner}) as running:
        assert await running.get(f"{PLAN}?rate=3&device=L4") == {"models": [], "others": ["sim"]}
    (question,) = asked
    assert question.device == "L4"
    assert question.demand.load is not None
    assert question.demand.load.rate == 3.0


async def test_wrong_questions_are_refused() -> None:
    def planner(settings: Settings, question: Question) -> dict[str, Any]:
        raise SettingsError(f"--device {question.device}: expected one of: cpu, L4")

    async with gateway(QUICK, handles={"planner": planner}) as running:
        for query, param in (("rate=fast", "rate"), ("gpus=2", "gpus"), ("device=B9", "device")):
            async with running.http.get(f"{PLAN}?{query}") as response:
                assert response.status == 400
                assert (await response.json())["error"]["param"] == param


async def test_without_a_planner_and_without_rights_there_is_none() -> None:
    async with gateway(QUICK) as running, running.http.get(PLAN) as response:
        assert response.status == 404
        assert (await response.json())["error"]["code"] == "no_plan"
    async with gateway(QUICK, tenants=("a",)) as running:
        for headers, status in (({}, 401), (running.headers("a"), 403)):
            async with running.http.get(PLAN, headers=headers) as response:
                assert response.status == status


async def test_requests_are_answered_while_a_plan_is_computed() -> None:
    began, goes_on = threading.Event(), threading.Event()

    def planner(settings: Settings, question: Question) -> dict[str, Any]:
        began.set()
        assert goes_on.wait(30)
        return {}

    async with gateway(QUICK, handles={"planner": planner}) as running:
        plan = asyncio.ensure_future(running.get(PLAN))
        assert await asyncio.to_thread(began.wait, 30)
        assert (await running.post("hi")).status == 200
        assert not plan.done()
        goes_on.set()
        assert await plan == {}
