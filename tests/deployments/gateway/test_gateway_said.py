"""What people say of answers: whose request it is about, what the cache learns, and who reads it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from local_cache import LocalCache, local_cache
from support.feedback import feedback_handle, open_feedback
from support.gateway import ADMIN, Answered, Running, SimSettings, gateway
from support.graph import eventually
from support.handles import LocalHandle
from support.meter import Meter

from deployments.gateway.feedback.endpoint import SECOND_LOOK_S
from serve_app.api.roles import Role
from serve_app.monitoring.metrics import FEEDBACK_DROPPED, FEEDBACK_SAID

QUICK = SimSettings(itl_ms=0, tokens=6)
ASKED = "what is the capital of france"
NEAR = "the capital of france is what"
ALSO_NEAR = "is what the capital of france"
PATH = "/v1/feedback"
RIGHTS: dict[str, Any] = {
    "team": {"role": Role.TENANT_ADMIN},
    "viewer": {"role": Role.VIEWER},
}


@asynccontextmanager
async def judging(handle: LocalHandle, **args: Any) -> AsyncIterator[Running]:
    """A gateway that takes feedback, with tenants."""
    handles = {"feedback": handle, **args.pop("handles", {})}
    settings = {"call_timeout_s": 0.5, **args.pop("feedback", {})}
    given = {"tenants": ["acme", "other", "team", "viewer"], "rights": RIGHTS, **args}
    async with gateway(QUICK, handles=handles, feedback=settings, **given) as running:
        yield running


async def asked(running: Running, tenant: str, text: str = "hi", **headers: str) -> str:
    """The id of a request that was answered."""
    given = {"x-request-id": uuid4().hex, **headers}
    answer = await running.post(text, running.headers(tenant) | given)
    assert answer.status == 200, answer.body
    return given["x-request-id"]


async def say(running: Running, tenant: str, request_id: str, **said: Any) -> Answered:
    return await running.send({"request_id": request_id, **said}, PATH, running.headers(tenant))


async def heard(running: Running, query: str = "", tenant: str = ADMIN) -> Any:
    async with running.http.get(f"/admin/feedback{query}", headers=running.headers(tenant)) as response:
        return await response.json()


async def test_what_is_said_of_an_answer_is_kept_with_the_request(tmp_path: Path) -> None:
    meter = Meter()
    async with feedback_handle(tmp_path) as handle, judging(handle, meter=meter) as running:
        request_id = await asked(running, "acme")
        answer = await say(running, "acme", request_id, score=0, label="wrong", text="no", correction="Paris")
        assert answer.status == 200, answer.body
        assert answer.json == {"request_id": request_id, "replaced": False, "cache_taught": False}
        (found,) = (await heard(running))["feedback"]
        assert (found["tenant"], found["request_id"]) == ("acme", request_id)
        assert (found["score"], found["label"], found["correction"]) == (0.0, "wrong", "Paris")
        assert found["request"]["model"] == "sim"
        assert found["request"]["output_tokens"] > 0
        assert found["author"].startswith("key:")
        assert meter.values[FEEDBACK_SAID.name] == {("negative",): 1}


async def test_the_same_author_replaces_what_was_said(tmp_path: Path) -> None:
    async with feedback_handle(tmp_path) as handle, judging(handle) as running:
        request_id = await asked(running, "acme")
        await say(running, "acme", request_id, score=0)
        assert (await say(running, "acme", request_id, score=1)).json["replaced"] is True
        assert [each["score"] for each in (await heard(running))["feedback"]] == [1.0]


async def test_unknown_and_foreign_requests_get_the_same_answer_after_the_same_time(tmp_path: Path) -> None:
    async with feedback_handle(tmp_path) as handle, judging(handle) as running:
        request_id = await asked(running, "acme", **{"x-request-id": "the-one-of-acme"})
        assert (await say(running, "acme", request_id, score=1)).status == 200
        answers, spans, said = [], [], handle.begun["say"]
        for wanted in (request_id, "the-one-of-none"):
            began = time.monotonic()
            answer = await say(running, "other", wanted, score=0)
            spans.append(time.monotonic() - began)
            assert answer.status == 404
            answers.append(answer.error["message"].replace(wanted, "…") + str(answer.error["code"]))
        assert answers[0] == answers[1]
        assert min(spans) >= SECOND_LOOK_S
        assert handle.begun["say"] - said == 4  # each was looked for twice
        assert [each["tenant"] for each in (await heard(running))["feedback"]] == ["acme"]


async def test_two_tenants_with_one_id_each_judge_their_own(tmp_path: Path) -> None:
    async with feedback_handle(tmp_path) as handle, judging(handle) as running:
        for tenant in ("acme", "other"):
            await asked(running, tenant, **{"x-request-id": "the-same-id"})
        assert (await say(running, "other", "the-same-id", score=0)).status == 200
        (found,) = (await heard(running))["feedback"]
        assert found["tenant"] == "other"


@pytest.mark.parametrize(
    ("said", "names"),
    [
        ({}, "score"),
        ({"score": 2}, "score"),
        ({"score": "bad"}, "score"),
        ({"score": 1, "stars": 5}, "stars"),
        ({"label": "x" * 65}, "label"),
        ({"text": "x" * 4001}, "max_text_chars"),
        ({"correction": "x" * 32_001}, "max_correction_chars"),
        ({"score": 1, "messages": [{"role": "user", "content": "hi"}]}, "correction"),
        ({"correction": "a", "messages": [{"content": "hi"}]}, "role"),
        ({"correction": "a", "messages": [{"role": "user", "content": "x" * 300_000}]}, "max_messages_bytes"),
    ],
)
async def test_a_wrong_body_is_refused_with_the_field(tmp_path: Path, said: Any, names: str) -> None:
    async with feedback_handle(tmp_path) as handle, judging(handle) as running:
        answer = await say(running, "acme", "r", **said)
        assert answer.status == 400
        assert names in answer.error["message"]
        assert not handle.begun["say"]


async def test_a_body_that_is_too_large_is_refused(tmp_path: Path) -> None:
    async with (
        feedback_handle(tmp_path) as handle,
        judging(handle, limits={"max_body_bytes": 10_000}) as running,
    ):
        assert (await say(running, "acme", "r", text="x" * 20_000)).status == 413


async def test_without_the_section_there_is_no_feedback() -> None:
    async with gateway(QUICK, tenants=["acme"]) as running:
        answer = await say(running, "acme", "r", score=1)
        assert (answer.status, answer.error["code"]) == (404, "no_feedback")
        assert (await heard(running))["error"]["code"] == "no_feedback"


async def test_a_team_reads_and_erases_its_own_and_viewers_nothing(tmp_path: Path) -> None:
    async with feedback_handle(tmp_path) as handle, judging(handle) as running:
        for tenant in ("acme", "team"):
            await say(running, tenant, await asked(running, tenant), score=0)
        assert [each["tenant"] for each in (await heard(running, "", "team"))["feedback"]] == ["team"]
        assert (await heard(running, "?tenant=acme", "team"))["error"]["code"] == "other_tenant"
        for tenant in ("viewer", "acme"):
            assert "error" in await heard(running, "", tenant)
        url = "/admin/feedback?tenant="
        async with running.http.delete(f"{url}acme", headers=running.headers("team")) as response:
            assert response.status == 403
        async with running.http.delete("/admin/feedback", headers=running.headers(ADMIN)) as response:
            assert response.status == 400
        async with running.http.delete(f"{url}team", headers=running.headers("team")) as response:
            assert (response.status, (await response.json())["erased"]) == (200, 2)
        assert [each["tenant"] for each in (await heard(running))["feedback"]] == ["acme"]


async def test_pages_have_bounds(tmp_path: Path) -> None:
    async with feedback_handle(tmp_path) as handle, judging(handle) as running:
        for _ in range(3):
            await say(running, "acme", await asked(running, "acme"), score=0)
        page = await heard(running, "?limit=2")
        assert len(page["feedback"]) == 2
        rest = await heard(running, f"?limit=2&after={page['next']}")
        assert (len(rest["feedback"]), rest["next"]) == (1, None)
        for query in ("?limit=0", "?limit=501", "?limit=x", "?after=-1", "?negative=maybe", "?who=me"):
            assert (await heard(running, query))["error"]["type"] == "invalid_request_error", query


async def test_feedback_that_comes_at_once_and_while_the_owner_is_away(tmp_path: Path) -> None:
    async with feedback_handle(tmp_path) as handle, judging(handle) as running:
        request_id = await asked(running, "acme")
        await handle.target.close()
        answer = await say(running, "acme", request_id, score=0)
        assert (answer.status, answer.error["code"]) == (503, "feedback_unavailable")
        assert (await running.post("serving goes on", running.headers("acme"))).status == 200
        handle.target = await open_feedback(tmp_path)  # its successor

        async def kept() -> bool:
            return (await say(running, "acme", request_id, score=0)).status == 200

        assert await eventually(kept, within_s=20)


async def test_requests_that_wait_for_the_owner_are_bounded_and_counted(tmp_path: Path) -> None:
    meter = Meter()
    async with feedback_handle(tmp_path) as handle:
        await handle.target.close()
        async with judging(handle, meter=meter, feedback={"max_waiting_requests": 3}) as running:
            for _ in range(6):
                await asked(running, "acme")

            async def counted() -> bool:
                return meter.values.get(FEEDBACK_DROPPED.name) == {(): 3}

            assert await eventually(counted, within_s=20)


@pytest.fixture
async def cache(folder: Path) -> AsyncIterator[LocalCache]:
    async with local_cache(folder, race=False) as cache:
        yield cache


@asynccontextmanager
async def cached(cache: LocalCache, folder: Path) -> AsyncIterator[Running]:
    async with (
        feedback_handle(folder / "said") as handle,
        judging(handle, handles=cache.handles, **cache.args) as running,
    ):
        for tenant in ("acme", "other"):
            await running.post(ASKED, running.headers(tenant))

        async def stored() -> bool:
            return bool((await running.get("/admin/cache"))["entries"] == 2)

        assert await eventually(stored, within_s=5)
        yield running


async def outcome(running: Running, tenant: str, text: str) -> tuple[str, str]:
    request_id = uuid4().hex
    answer = await running.post(text, running.headers(tenant) | {"x-request-id": request_id})
    return str(answer.headers["x-cache"]), request_id


async def test_a_wrong_near_hit_is_not_given_to_that_text_again(cache: LocalCache, folder: Path) -> None:
    async with cached(cache, folder) as running:
        how, request_id = await outcome(running, "acme", NEAR)
        assert how == "semantic"
        assert (await say(running, "acme", request_id, score=0.2)).json["cache_taught"] is True
        no_write = running.headers("acme") | {"cache-control": "max-age=1000"}
        answer = await running.post(NEAR, no_write)
        assert (answer.headers["x-cache"], answer.headers["x-cache-refused"]) == ("miss", "blocked")
        assert (await outcome(running, "acme", ALSO_NEAR))[0] in ("semantic", "exact")
        assert (await outcome(running, "other", NEAR))[0] == "semantic"


async def test_who_takes_it_back_lets_the_entry_answer_again(cache: LocalCache, folder: Path) -> None:
    async with cached(cache, folder) as running:
        _, request_id = await outcome(running, "acme", NEAR)
        await say(running, "acme", request_id, score=0)
        assert (await say(running, "acme", request_id, score=1)).json["cache_taught"] is True
        assert (await outcome(running, "acme", NEAR))[0] == "semantic"


async def test_nobody_teaches_another_tenants_cache(cache: LocalCache, folder: Path) -> None:
    async with cached(cache, folder) as running:
        _, request_id = await outcome(running, "acme", NEAR)
        assert (await say(running, "other", request_id, score=0)).status == 404
        assert (await outcome(running, "acme", NEAR))[0] == "semantic"


async def test_the_cache_knows_whose_entry_it_is(cache: LocalCache, folder: Path) -> None:
    async with cached(cache, folder) as running:
        answer = await running.post(NEAR, running.headers("acme"))
        entry = answer.headers["x-cache-entry"]
        assert await cache.store.target.refuse("other", UUID(entry), "0" * 32, True) is False
        assert await cache.store.target.refuse("acme", UUID(entry), "0" * 32, True) is True


async def test_feedback_is_kept_also_where_the_cache_is_away(cache: LocalCache, folder: Path) -> None:
    async with cached(cache, folder) as running:
        _, request_id = await outcome(running, "acme", NEAR)
        with cache.store.failing("refuse"):
            answer = await say(running, "acme", request_id, score=0)
        assert answer.json == {"request_id": request_id, "replaced": False, "cache_taught": False}


async def test_many_at_once_are_all_kept(tmp_path: Path) -> None:
    async with feedback_handle(tmp_path) as handle, judging(handle) as running:
        ids = [await asked(running, "acme") for _ in range(20)]
        answers = await asyncio.gather(*(say(running, "acme", each, score=1) for each in ids))
        assert {answer.status for answer in answers} == {200}
        assert len((await heard(running))["feedback"]) == 20
