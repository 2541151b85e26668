"""`/admin/requests`: the newest requests, for administrators."""

from __future__ import annotations

import pytest
from support.gateway import ADMIN, Running, SimSettings, gateway

from serve_app.recent import Found, Query

QUICK = SimSettings(itl_ms=0, tokens=4)
SECRET = "a text that nobody else may read"


async def newest(running: Running, query: str = "") -> list[dict[str, object]]:
    requests: list[dict[str, object]] = (await running.get(f"/admin/requests{query}"))["requests"]
    return requests


async def test_a_request_is_there_with_its_steps_and_without_its_text() -> None:
    async with gateway(QUICK) as running:
        await running.post(SECRET, {"x-request-id": "mine"}, stream=True)
        said = await running.get("/admin/requests")
        (request,) = said["requests"]
        assert request["id"] == "mine"
        assert (request["model"], request["outcome"], request["status"]) == ("sim", "bypass", 200)
        assert (request["member"], request["path"]) == ("e0", "/v1/chat/completions")
        assert {"admit", "upstream-ttft"} <= {step["name"] for step in request["steps"]}
        assert 0 < request["overhead_ms"] <= request["total_ms"]
        assert SECRET not in str(said)
        assert (said["kept"], said["seen"], said["next"]) == (1, 1, None)


async def test_a_request_names_its_arm_of_an_experiment() -> None:
    arm = {"name": "cool", "percent": 100.0, "settings": {"temperature": 0.0}}
    async with gateway(QUICK, experiments=[{"name": "heat", "arms": [arm]}]) as running:
        await running.post("hi")
        (request,) = await newest(running)
        assert request["experiment"] == "heat=cool"


async def test_what_the_console_asks_for_itself_is_not_listed() -> None:
    async with gateway(QUICK) as running:
        for path in ("/admin/fleet", "/v1/models", "/ready", "/nowhere"):
            await running.get(path)
        assert await newest(running) == []


async def test_filters_and_pages() -> None:
    async with gateway(QUICK) as running:
        for _ in range(3):
            await running.post("hi")
        await running.send({"model": "none", "messages": [{"role": "user", "content": "hi"}]})
        assert [each["outcome"] for each in await newest(running, "?outcome=error")] == ["error"]
        assert len(await newest(running, "?model=sim")) == 3
        assert await newest(running, "?slower_ms=60000") == []
        first = await running.get("/admin/requests?limit=3")
        second = await running.get(f"/admin/requests?limit=3&before={first['next']}")
        assert [len(page["requests"]) for page in (first, second)] == [3, 1]
        assert second["next"] is None
        async with running.http.get("/admin/requests?limit=0") as response:
            assert (await response.json())["error"]["param"] == "limit"


async def test_tenants_see_nothing_of_it() -> None:
    async with gateway(QUICK, tenants=("a", "b")) as running:
        await running.post("hi", headers=running.headers("a"))
        async with running.http.get("/admin/requests", headers=running.headers("a")) as response:
            assert response.status == 403
        async with running.http.get("/admin/requests") as response:
            assert response.status == 401
        async with running.http.get("/admin/requests?tenant=a", headers=running.headers(ADMIN)) as response:
            assert [each["tenant"] for each in (await response.json())["requests"]] == ["a"]


async def test_the_number_that_is_kept_is_a_setting() -> None:
    async with gateway(QUICK, gateway={"recent_requests": 2}) as running:
        for _ in range(4):
            await running.post("hi")
        said = await running.get("/admin/requests")
        assert (len(said["requests"]), said["kept"], said["seen"]) == (2, 2, 4)
    async with gateway(QUICK, gateway={"recent_requests": 0}) as running:
        await running.post("hi")
        assert (await running.get("/admin/requests"))["error"]["code"] == "no_recent_requests"


@pytest.mark.parametrize("answered", [True, False], ids=["they answer", "they do not"])
async def test_the_requests_of_all_gateways_are_gathered(answered: bool) -> None:
    asked: list[Query] = []

    async def everywhere(query: Query) -> list[Found]:
        asked.append(query)
        return [Found((), 7, 9, False), Found((), 1, 1, False)] if answered else []

    async with gateway(QUICK, handles={"find_everywhere": everywhere}) as running:
        await running.post("hi")
        said = await running.get("/admin/requests?model=sim")
        assert asked == [Query(model="sim")]
        assert (said["kept"], said["seen"]) == ((8, 10) if answered else (1, 1))
