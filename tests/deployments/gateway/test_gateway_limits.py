"""Limits over real HTTP: what is counted, refused and told."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from local_cache import LocalCache, local_cache
from scripted_member import Member, begin, chunk, listening
from support.accounts import accounts_handle, bearer, managed, with_accounts
from support.gateway import MODEL, Running, SimSettings, gateway, meanwhile
from support.graph import eventually
from support.handles import LocalHandle
from support.responses import responses_handle

from deployments.cli.main import main
from deployments.gateway.endpoints.admin_limits import limit_of
from serve_app.api.roles import Role
from serve_app.errors import BadRequest
from serve_app.quotas.cost import Use
from serve_app.quotas.limits import Bound, Limit
from serve_app.quotas.messages import Batch, LeaseCall, Spent
from serve_app.usage.prices import Price

HALF = Price(input=0.5, output=0.5)


@asynccontextmanager
async def limited(
    folder: Path, *limits: Limit, engine: SimSettings | None = None, **args: Any
) -> AsyncIterator[tuple[Running, LocalHandle, dict[str, str]]]:
    """A gateway whose owner has these limits, and the headers of a key of tenant `acme`, user `ann`."""
    async with accounts_handle(folder) as handle:
        key, kept = managed("acme", user="ann")
        await handle.target.make_key(kept)
        other, kept_too = managed("known-by-then")
        await handle.target.make_key(kept_too)
        for limit in limits:
            scope = limit.scope.replace("KEY", kept.record.id)
            await handle.target.set_limit(Limit(scope, **{f: getattr(limit, f) for f in FIELDS}))
        async with with_accounts(handle, *([engine] if engine else []), **args) as running:
            assert await eventually(lambda: knows(running, bearer(other)), within_s=10)
            yield running, handle, bearer(key)


@asynccontextmanager
async def budgeted(
    folder: Path, member: Member, *, paths: Sequence[str] = (), **limits: Any
) -> AsyncIterator[tuple[Running, LocalHandle, dict[str, str]]]:
    """A gateway before one scripted member; the headers of a key of tenant `acme`, which has these limits."""
    async with listening(member), accounts_handle(folder) as handle:
        key, kept = managed("acme")
        await handle.target.make_key(kept)
        await handle.target.set_limit(Limit("tenant:acme", **limits))
        more = {"paths": list(paths)} if paths else {}
        upstream = member.upstream(kind="vllm", health_period_s=60.0, **more)
        args: dict[str, Any] = {"auth": {"accounts": True}, "accounts": {"call_timeout_s": 0.5}}
        async with gateway(others=[upstream], handles={"accounts": handle}, **args) as running:
            assert await eventually(lambda: knows(running, bearer(key)), within_s=10)
            yield running, handle, bearer(key)


@asynccontextmanager
async def cached(
    folder: Path,
    engine: SimSettings,
    *,
    tokens_per_day: int = 100_000,
    parallel_requests: int | None = None,
    accounts: Mapping[str, float] | None = None,
    **cache: Any,
) -> AsyncIterator[tuple[Running, LocalHandle, dict[str, str], LocalCache]]:
    """A gateway with a cache of these settings; the headers of a key of tenant `acme`, and its limit."""
    async with (
        local_cache(folder / "cache", race=False, **cache) as local,
        accounts_handle(folder) as handle,
    ):
        key, kept = managed("acme")
        await handle.target.make_key(kept)
        limit = Limit("tenant:acme", tokens_per_day=tokens_per_day, parallel_requests=parallel_requests)
        await handle.target.set_limit(limit)
        args = {**local.args, "auth": {"accounts": True}, "accounts": accounts or {"call_timeout_s": 0.5}}
        async with gateway(engine, handles={"accounts": handle, **local.handles}, **args) as running:
            assert await eventually(lambda: knows(running, bearer(key)), within_s=10)
            yield running, handle, bearer(key), local


async def knows(running: Running, headers: dict[str, str]) -> bool:
    async with running.http.get("/v1/models", headers=headers) as response:
        return response.status == 200


FIELDS = [name for name in Limit.__struct_fields__ if name != "scope"]


async def test_requests_beyond_the_minute_s_are_refused(tmp_path: Path) -> None:
    async with limited(tmp_path, Limit("key:KEY", requests_per_minute=3)) as (running, _, key):
        answers = [await running.post(f"{n}", key) for n in range(5)]
        assert [each.status for each in answers] == [200, 200, 200, 429, 429]
        assert answers[0].headers["x-ratelimit-limit-requests"] == "3"
        assert answers[0].headers["x-ratelimit-remaining-requests"] == "2"
        assert {each.headers["x-ratelimit-reset-requests"] for each in answers} == {"1m0s"}
        refused = answers[-1]
        assert refused.error["code"] == "rate_limit_exceeded"
        assert 50 <= int(refused.headers["retry-after"]) <= 61
        assert refused.headers["x-ratelimit-remaining-requests"] == "0"


async def test_tokens_are_reserved_and_settled_by_what_was_used(tmp_path: Path) -> None:
    tokens = SimSettings(itl_ms=0, tokens=10)
    async with limited(tmp_path, Limit("tenant:acme", tokens_per_day=200), engine=tokens) as (
        running,
        _,
        key,
    ):
        used = 0
        statuses = []
        for n in range(20):
            answer = await running.post(f"{n}", key, max_tokens=60)
            statuses.append(answer.status)
            if answer.status != 200:
                assert answer.error["code"] == "insufficient_quota"
                assert int(answer.headers["retry-after"]) > 1
                assert answer.headers["x-should-retry"] in {"true", "false"}
                break
            used += answer.json["usage"]["total_tokens"]
        assert 200 - 80 < used <= 200
        assert len(statuses) > 5


async def test_a_limit_is_set_shown_and_removed_while_it_runs(tmp_path: Path) -> None:
    async with limited(tmp_path) as (running, handle, key):
        admin, kept = managed("ops", role=Role.ADMIN)
        await handle.target.make_key(kept)
        headers = bearer(admin)
        assert await eventually(lambda: known(running, headers), within_s=10)
        assert (await running.post("free", key)).status == 200
        body = {"scope": "tenant:acme", "requests_per_minute": 1, "time_zone": "Europe/Berlin"}
        async with running.http.put("/admin/limits", json=body, headers=headers) as response:
            assert response.status == 200, await response.read()
        assert [(await running.post(f"{n}", key)).status for n in range(2)] == [200, 429]

        async def shown() -> bool:
            async with running.http.get("/admin/limits?scope=tenant:", headers=headers) as response:
                (found,) = (await response.json())["limits"]
            uses: dict[str, Any] = found["uses"]["requests_per_minute"]
            return bool(found["limit"] == body and uses["limit"] == 1 and uses["used"] == 1)

        assert await eventually(shown, within_s=10)
        url = "/admin/limits?scope=tenant:acme"
        async with running.http.delete(url, headers=headers) as response:
            assert response.status == 200
        async with running.http.delete(url, headers=headers) as response:
            assert response.status == 404
        assert (await running.post("free again", key)).status == 200


async def test_money_that_was_used_is_shown_as_its_limit_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two million tokens at 0.5 a million."""
    limit = Limit("tenant:acme", tokens_per_day=5_000_000, money_per_month=12.5)
    used = Use(prompt=1_500_000, output=500_000)
    async with limited(tmp_path, limit) as (running, handle, _):
        spent = [
            Spent("tenant:acme", bound, "acme", used.of(bound, HALF), 0.0)
            for bound in (Bound.TOKENS_DAY, Bound.MONEY_MONTH)
        ]
        call = LeaseCall("another gateway", 1, "", True, [], [Batch(1, spent)], [], [])
        await handle.target.lease(call)

        async with running.http.get("/admin/limits?scope=tenant:acme") as response:
            (found,) = (await response.json())["limits"]
        assert found["uses"]["money_per_month"] == {"limit": 12.5, "used": 1.0, "held": 0.0}
        assert found["uses"]["tokens_per_day"] == {"limit": 5_000_000, "used": 2_000_000, "held": 0}
        kept = tmp_path / "secret"
        kept.write_text(running.http.headers["authorization"].removeprefix("Bearer ") + "\n")
        command = ["limits", "list", "--endpoint", running.url, "--key-file", str(kept)]
        assert await asyncio.to_thread(main, command) == 0
        said = capsys.readouterr().out
        assert "tokens_per_day=2000000/5000000" in said
        assert "money_per_month=1/12.5" in said


async def known(running: Running, headers: dict[str, str]) -> bool:
    async with running.http.get("/admin/limits", headers=headers) as response:
        return response.status == 200


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"tokens_per_day": -1}, "tokens_per_day"),
        ({"tokens_per_day": 10**16}, "tokens_per_day"),
        ({"money_per_month": 1e300}, "money_per_month"),
        ({"requests_per_minute": 1.5}, "requests_per_minute"),
        ({"requests": 1}, "requests"),
        ({"scope": "everyone"}, "scope"),
        ({"scope": "user:acme"}, "scope"),
        ({"time_zone": "Mars/Base"}, "time_zone"),
        ({"scope": "key:1", "time_zone": "UTC"}, "time_zone"),
        ({"scope": "key:nick"}, "`scope`: no key has an id of 4 characters that begins with 'nick'"),
        ({"scope": "key:0A1B2C3D4E5F"}, "`promptly keys list` shows"),
        ({"scope": "tenant:-acme"}, "no tenant can be called '-acme'"),
        ({"scope": "tenant:acme corp"}, "no tenant can be called 'acme corp'"),
        ({"scope": "user:a b/ann"}, "no tenant can be called 'a b'"),
        ({"scope": "use:~/m"}, "no tenant can be called '~'"),
    ],
)
async def test_absurd_limits_are_refused_by_name(fields: dict[str, Any], wrong: str) -> None:
    with pytest.raises(BadRequest) as refused:
        limit_of(json.dumps({"scope": "tenant:acme", **fields}).encode())
    assert wrong in refused.value.message


def test_a_whole_key_in_the_place_of_its_id_is_not_repeated() -> None:
    with pytest.raises(BadRequest) as refused:
        limit_of(b'{"scope": "key:pk-0123456789ab-hushhush"}')
    assert "hush" not in refused.value.message


@pytest.mark.parametrize(
    "scope", ["key:0123456789ab", "tenant:not-yet", "user:acme/Ann Lee", "user:acme/https://id/7"]
)
def test_what_does_not_exist_yet_may_be_limited(scope: str) -> None:
    assert limit_of(json.dumps({"scope": scope, "requests_per_minute": 1}).encode()).scope == scope


async def test_parallel_requests_end_and_others_begin(tmp_path: Path) -> None:
    slow = SimSettings(itl_ms=20, tokens=40)
    async with limited(tmp_path, Limit("user:acme/ann", parallel_requests=1), engine=slow) as (
        running,
        _,
        key,
    ):
        async with running.stream("first", key) as stream:
            await stream.event()
            assert (await running.post("second", key)).status == 429
            stream.leave()

        async def free() -> bool:
            return (await running.post("third", key, max_tokens=1)).status == 200

        assert await eventually(free, within_s=10)


async def test_who_may_run_no_more_still_reads_and_ends_what_runs(tmp_path: Path) -> None:
    endless = SimSettings(itl_ms=20, tokens=10_000)
    one = Limit("tenant:acme", parallel_requests=1)
    async with (
        responses_handle(tmp_path / "responses") as stored,
        limited(tmp_path, one, engine=endless, handles={"responses": stored}, responses={}) as (
            running,
            _,
            key,
        ),
    ):
        body = {"model": MODEL, "input": "hi", "background": True}
        begun = await running.send(body, "/v1/responses", key)
        assert begun.status == 200, begun.body
        assert (await running.post("second", key)).status == 429
        path = f"/v1/responses/{begun.json['id']}"
        for method, asked, status in (
            ("GET", path, 200),
            ("GET", f"{path}?%73tream=true", 429),  # it would run until the response is whole
            ("GET", "/v1/models", 200),
            ("POST", f"{path}/cancel", 200),
        ):
            async with running.http.request(method, asked, headers=key) as response:
                assert response.status == status, await response.text()

        async def free() -> bool:
            return (await running.post("third", key, max_tokens=1)).status == 200

        assert await eventually(free, within_s=10)


@pytest.mark.parametrize("absurd", [2**64, 10**30, "9" * 22])
async def test_an_absurd_request_is_refused_and_disturbs_nobody(tmp_path: Path, absurd: int | str) -> None:
    """It is more than what gateways and the owner tell each other in can hold."""
    both = [Limit(f"tenant:{tenant}", tokens_per_day=5000) for tenant in ("acme", "others")]
    async with limited(tmp_path, *both) as (running, handle, key):
        made, kept = managed("others")
        await handle.target.make_key(kept)
        assert await eventually(lambda: knows(running, bearer(made)), within_s=10)
        asked = [running.post(f"absurd {n}", key, max_tokens=absurd) for n in range(5)]
        asked += [running.post(f"usual {n}", bearer(made), max_tokens=5) for n in range(5)]
        answers = await asyncio.gather(*asked)
        assert [each.status for each in answers] == [429] * 5 + [200] * 5
        assert "more than ever fits" in answers[0].error["message"]
        assert "retry-after" not in answers[0].headers


async def test_messages_have_anthropics_headers_and_errors(tmp_path: Path) -> None:
    limits = Limit("tenant:acme", requests_per_minute=1, tokens_per_minute=90)
    async with limited(tmp_path, limits) as (running, _, key):
        body = {"model": MODEL, "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}
        answer = await running.send(body, "/v1/messages", key)
        assert answer.status == 200, answer.body
        assert answer.headers["anthropic-ratelimit-requests-limit"] == "1"
        assert answer.headers["anthropic-ratelimit-tokens-limit"] == "90"
        assert answer.headers["anthropic-ratelimit-requests-reset"].endswith("Z")
        refused = await running.send(body, "/v1/messages", key)
        assert refused.status == 429
        assert refused.json["error"]["type"] == "rate_limit_error"
        assert "retry-after" in refused.headers


async def test_a_generation_ends_with_an_error_where_a_budget_ends(tmp_path: Path) -> None:
    endless = SimSettings(itl_ms=2, tokens=2500)
    limit = Limit("tenant:acme", tokens_per_day=1500)
    async with limited(tmp_path, limit, engine=endless) as (running, handle, key):
        async with running.stream("tell me all", key) as stream:
            answer = await stream.rest()
        assert answer.cut["code"] == "insufficient_quota"
        assert len(answer.events) > 100

        async def in_usage() -> bool:
            db = sqlite3.connect(tmp_path / "accounts.sqlite3")
            rows = db.execute("SELECT tokens_in + tokens_out FROM usage").fetchall()
            db.close()
            return (await used_of(handle),) in rows

        assert await eventually(in_usage, within_s=10)


async def test_a_generation_that_ends_where_others_hold_the_rest_says_so(tmp_path: Path) -> None:
    engine = SimSettings(itl_ms=4, tokens=2500)
    limit = Limit("tenant:acme", tokens_per_day=3000)
    async with limited(tmp_path, limit, engine=engine) as (running, _, key):
        async with running.stream("waits", key, max_tokens=2400) as other:
            await other.event()
            async with running.stream("tell me all", key) as stream:
                answer = await stream.rest()
            other.leave()
        assert answer.cut["code"] == "rate_limit_exceeded"
        assert "Requests that run have reserved the rest" in answer.cut["message"]


async def test_a_whole_answer_is_given_the_length_that_a_budget_leaves(tmp_path: Path) -> None:
    endless = SimSettings(itl_ms=0, tokens=20_000)
    limit = Limit("tenant:acme", tokens_per_day=1300)
    async with limited(tmp_path, limit, engine=endless) as (running, handle, key):
        answer = await running.post("tell me all", key)
        assert (answer.status, answer.json["choices"][0]["finish_reason"]) == (200, "length")
        total = answer.json["usage"]["total_tokens"]
        assert 1300 - 64 < total <= 1300 + 16  # the prompt is estimated before
        assert await eventually(lambda: has_used(handle, total, total), within_s=10)


@pytest.mark.parametrize(("fields", "least", "most"), [({}, 16, 16), ({"max_tokens": None}, 1200, 1300)])
async def test_a_completion_without_a_limit_has_openai_s_and_with_null_the_budget_s(
    tmp_path: Path, fields: dict[str, Any], least: int, most: int
) -> None:
    endless = SimSettings(itl_ms=0, tokens=20_000)
    async with limited(tmp_path, Limit("tenant:acme", tokens_per_day=1300), engine=endless) as (
        running,
        _,
        key,
    ):
        body = {"model": MODEL, "prompt": "tell me all", **fields}
        answer = await running.send(body, "/v1/completions", key)
        assert answer.status == 200, answer.body
        assert least <= answer.json["usage"]["completion_tokens"] <= most


async def test_of_whole_answers_at_once_those_end_with_an_error_that_a_budget_has_no_room_for(
    tmp_path: Path,
) -> None:
    """Each may be told that it has all that is left; they count by the time that they take."""
    endless = SimSettings(itl_ms=1, tokens=20_000)
    limit = Limit("tenant:acme", tokens_per_day=2600)
    async with limited(tmp_path, limit, engine=endless) as (running, handle, key):
        assert (await running.post("how fast is it?", key, max_tokens=100)).status == 200
        async with asyncio.timeout(30):
            both = await asyncio.gather(*[running.post(f"tell me all {n}", key) for n in range(2)])
        ended = [each for each in both if each.status == 429]
        assert ended, "both cannot have what only one has room for"
        assert {each.error["code"] for each in ended} <= {"insufficient_quota", "rate_limit_exceeded"}
        assert all("The answer is lost, and counts" in each.error["message"] for each in ended)
        assert await eventually(lambda: has_used(handle, 2000, 2600), within_s=10)


async def test_what_only_runs_hold_is_refused_for_a_moment_and_not_for_the_day(tmp_path: Path) -> None:
    slow = SimSettings(itl_ms=20, tokens=400)
    limit = Limit("tenant:acme", tokens_per_day=1000)
    async with limited(tmp_path, limit, engine=slow) as (running, _, key):
        async with running.stream("first", key, max_tokens=900) as stream:
            await stream.event()
            refused = await running.post("second", key, max_tokens=900)
            stream.leave()
        assert (refused.status, refused.error["code"]) == (429, "rate_limit_exceeded")
        assert refused.headers["retry-after"] == "1"
        assert refused.headers["x-should-retry"] == "true"
        assert "requests that run have reserved the rest" in refused.error["message"]
        spent = await running.post("third", key, max_tokens=1100)
        assert (spent.error["code"], "retry-after" in spent.headers) == ("insufficient_quota", False)


async def test_a_whole_answer_is_as_long_as_the_budget_lets_it_be(tmp_path: Path) -> None:
    engine = SimSettings(itl_ms=1, tokens=3000)
    async with limited(tmp_path, Limit("tenant:acme", tokens_per_day=9000), engine=engine) as (
        running,
        handle,
        key,
    ):
        answers = await asyncio.gather(*(running.post(f"tell me {n}", key) for n in range(2)))
        assert [each.json["choices"][0]["finish_reason"] for each in answers] == ["stop", "stop"]
        assert await eventually(lambda: has_used(handle, 6000, 6100), within_s=10)


async def test_an_owner_that_is_away_stops_only_what_has_limits(tmp_path: Path) -> None:
    async with limited(tmp_path, Limit("tenant:acme", requests_per_minute=100)) as (running, handle, key):
        free, kept = managed("other")
        await handle.target.make_key(kept)
        assert (await running.post("1", key)).status == 200

        async def has_key() -> bool:
            return (await running.post("hello", bearer(free))).status == 200

        assert await eventually(has_key, within_s=10)
        with handle.failing("lease"):
            statuses = [(await running.post(f"{n}", key)).status for n in range(20)]
            assert set(statuses) <= {200, 503}
            assert sorted(statuses) == statuses  # what was granted is used up first
            assert statuses[-1] == 503
            assert (await running.post("no limits", bearer(free))).status == 200
        assert await eventually(lambda: answers(running, key), within_s=10)


async def answers(running: Running, key: dict[str, str]) -> bool:
    return (await running.post("again", key)).status == 200


async def test_a_file_that_cannot_be_written_stops_no_request_and_loses_no_use(tmp_path: Path) -> None:
    tokens = SimSettings(itl_ms=0, tokens=10)
    async with limited(tmp_path, Limit("tenant:acme", tokens_per_day=5000), engine=tokens) as (
        running,
        _,
        key,
    ):
        locker = sqlite3.connect(tmp_path / "accounts.sqlite3", isolation_level=None)
        locker.execute("BEGIN IMMEDIATE")
        try:
            assert [(await running.post(f"{n}", key, max_tokens=20)).status for n in range(3)] == [200] * 3
        finally:
            locker.execute("ROLLBACK")
            locker.close()

        async def written() -> bool:
            db = sqlite3.connect(tmp_path / "accounts.sqlite3")
            rows = db.execute("SELECT amount FROM used").fetchall()
            db.close()
            return bool(rows) and rows[0][0] >= 30

        assert await eventually(written, within_s=15)


async def used_of(handle: LocalHandle, bound: str = "tokens_per_day") -> int:
    page = await handle.target.limits("tenant:acme", "", 10)
    uses = {str(key): value for key, value in page.limits[0].uses.items()}
    return int(uses[bound].used)


async def has_used(handle: LocalHandle, least: int, most: int) -> bool:
    return least <= await used_of(handle) <= most


async def test_a_client_cannot_teach_that_its_answers_are_short(tmp_path: Path) -> None:
    long = SimSettings(itl_ms=0, tokens=1500)
    async with limited(tmp_path, Limit("tenant:acme", tokens_per_day=3000), engine=long) as (running, _, key):
        for n in range(22):
            assert (await running.post(f"short {n}", key, max_tokens=1)).status == 200
        answers = await asyncio.gather(*[running.post(f"long {n}", key) for n in range(12)])
        statuses = [each.status for each in answers]
        assert set(statuses) == {200, 429}
        assert statuses.count(200) <= 3  # those that fit, each by what an answer of unknown length reserves


async def test_all_that_a_stream_used_counts_however_often_it_reserved_more(tmp_path: Path) -> None:
    fast = SimSettings(itl_ms=0.1, tokens=8000)
    limit = Limit("tenant:acme", tokens_per_day=100_000)
    async with limited(tmp_path, limit, engine=fast) as (running, handle, key):
        async with running.stream("tell me all", key, stream_options={"include_usage": True}) as stream:
            answer = await stream.rest()
        total = answer.chunks[-1]["usage"]["total_tokens"]
        assert total > 8000

        async def counted() -> bool:
            return await used_of(handle) == total

        assert await eventually(counted, within_s=10)


async def arrived(running: Running, requests: int) -> None:
    async def so_many() -> bool:
        return running.requests() == [requests]

    assert await eventually(so_many, within_s=10)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_early_pays_for_what_a_member_did(tmp_path: Path, stream: bool) -> None:
    slow = SimSettings(itl_ms=50, tokens=2000, prefill_ms_per_1k=20_000)
    limit = Limit("tenant:acme", tokens_per_day=100_000)
    async with limited(tmp_path, limit, engine=slow) as (running, handle, key):
        asking = running.post("word " * 1000, key, stream=stream, max_tokens=500)
        async with meanwhile(asking):
            await arrived(running, 1)

        async def counted() -> bool:
            return await used_of(handle) > 500

        assert await eventually(counted, within_s=10)
        used = await used_of(handle)
        # The prompt as estimated; no pace is known, so a whole answer counts as it was reserved.
        assert used < 2500 if stream else used > 1000

        async def in_usage() -> bool:
            db = sqlite3.connect(tmp_path / "accounts.sqlite3")
            rows = db.execute("SELECT tokens_in, tokens_out FROM usage").fetchall()
            db.close()
            return (used, 0) in rows if stream else (used - 500, 500) in rows

        assert await eventually(in_usage, within_s=10)


async def test_without_limits_usage_counts_those_who_left_early_too(tmp_path: Path) -> None:
    slow = SimSettings(itl_ms=50, tokens=2000, prefill_ms_per_1k=20_000)
    async with limited(tmp_path, engine=slow) as (running, _, key):
        async with meanwhile(running.post("word " * 1000, key, max_tokens=500)):
            await arrived(running, 1)

        async def in_usage() -> bool:
            db = sqlite3.connect(tmp_path / "accounts.sqlite3")
            rows = db.execute("SELECT tokens_in, tokens_out FROM usage").fetchall()
            db.close()
            return any(prompt > 1000 and output == 500 for prompt, output in rows)

        assert await eventually(in_usage, within_s=10)


async def test_what_a_stream_generates_counts_by_the_minute_while_it_runs(tmp_path: Path) -> None:
    over = asyncio.Event()

    async def long(request: web.Request) -> web.StreamResponse:
        if "short" in (await request.read()).decode():
            usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
            choice = {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
            return web.json_response({"object": "chat.completion", "choices": [choice], "usage": usage})
        answer = await begin(request)
        for n in range(2000):
            await answer.write(b"data: " + chunk(f"token {n}") + b"\n\n")
            await asyncio.sleep(0)
        await over.wait()
        await answer.write(b"data: [DONE]\n\n")
        return answer

    async with (
        budgeted(tmp_path, Member(long), tokens_per_minute=5000) as (running, _, key),
        running.stream("long", key) as stream,
    ):
        await stream.event()

        async def is_counted() -> bool:
            return (await running.post("short", key, max_tokens=3500)).status == 429

        assert await eventually(is_counted, within_s=20)
        over.set()
        await stream.rest()  # it is not cut


@pytest.mark.parametrize("stream", [False, True])
async def test_a_generation_that_others_joined_is_paid_by_who_began_it(tmp_path: Path, stream: bool) -> None:
    async with cached(tmp_path, SimSettings(itl_ms=20, tokens=100)) as (running, handle, key, _):
        asked = {"stream": stream, "temperature": 0, "max_tokens": 300}
        async with AsyncExitStack() as leader:
            await leader.enter_async_context(meanwhile(running.post("tell", key, **asked)))
            await arrived(running, 1)
            async with meanwhile(running.post("tell", key, **asked)) as follower:
                await running.until_traffic(lambda traffic: traffic["joined"] == 1)
                await leader.aclose()
                answer = await follower
        assert answer.headers["x-cache"] == "joined"
        assert running.requests() == [1]

        async def counted() -> bool:
            return 100 < await used_of(handle) < 120

        assert await eventually(counted, within_s=10)


@pytest.mark.parametrize("rate", [0.0, 0.5])
async def test_answers_of_the_cache_cost_the_set_part_of_their_tokens(tmp_path: Path, rate: float) -> None:
    words = SimSettings(itl_ms=0, tokens=100)
    async with cached(tmp_path, words, accounts={"cached_rate": rate}) as (running, handle, key, _):
        costs = 0

        async def asked(text: str, part: float) -> str:
            nonlocal costs
            answer = await running.post(text, key, temperature=0, max_tokens=300)
            usage = answer.json["usage"]
            costs += round(usage["prompt_tokens"] * part) + round(usage["completion_tokens"] * part)
            return answer.headers["x-cache"]

        async def counted() -> bool:
            return await used_of(handle) == costs

        for text, part, status in (
            ("tell me all", 1.0, "miss"),
            ("tell me all", rate, "exact"),
            ("all tell me", rate, "semantic"),
        ):
            assert await asked(text, part) == status
            assert await eventually(counted, within_s=10)
        assert running.requests() == [1]


async def test_answers_that_are_fetched_beside_stale_ones_are_paid_and_end_with_the_budget(
    tmp_path: Path,
) -> None:
    long = SimSettings(itl_ms=0, tokens=100)
    async with cached(tmp_path, long, tokens_per_day=1000, stale_s=600.0) as (running, handle, key, _):
        brief = {**key, "x-cache-ttl": "0.01"}  # each answer is stale at once

        async def again() -> str:
            answer = await running.post("tell", brief, temperature=0, max_tokens=120)
            return answer.headers["x-cache"] if answer.status == 200 else "refused"

        for _ in range(60):
            assert await again() in ("miss", "exact"), "a stale answer costs nothing by itself"
            await asyncio.sleep(0.02)
        asked = running.requests()[0]
        assert 3 <= asked <= 10  # what the budget has room for

        async def counted() -> bool:
            return 100 * asked < await used_of(handle) <= 1000

        assert await eventually(counted, within_s=10)
        await again()
        assert running.requests() == [asked]


async def test_an_answer_beside_a_stale_one_is_paid_also_where_it_is_given_up(tmp_path: Path) -> None:
    """Else a short time-out on each request has a member work for nothing."""
    slow = SimSettings(first_token_ms=600.0, itl_ms=0, tokens=5)
    async with cached(tmp_path, slow, stale_s=600.0) as (running, handle, key, cache):

        async def stored() -> bool:
            return cache.store.ended["put"] > 0

        async def counted() -> bool:
            return 120 < await used_of(handle) < 200

        brief = {**key, "x-cache-ttl": "0.01"}
        for expected, patience in (("miss", {}), ("exact", {"x-request-timeout-ms": "300"})):
            answer = await running.post("tell", brief | patience, temperature=0, max_tokens=120)
            assert answer.headers["x-cache"] == expected
            assert await eventually(stored, within_s=10)
        assert await eventually(counted, within_s=10)
        assert running.requests() == [2]


async def test_an_absurd_count_of_a_member_does_not_use_up_a_budget(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def boast(request: web.Request) -> web.Response:
        usage = {"prompt_tokens": 10**11, "completion_tokens": 10**11, "total_tokens": 2 * 10**11}
        choice = {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
        return web.json_response({"object": "chat.completion", "choices": [choice], "usage": usage})

    member = Member(boast)
    async with budgeted(tmp_path, member, tokens_per_day=1_000_000) as (running, handle, key):
        assert (await running.post("1", key, max_tokens=5)).status == 200
        assert (await running.post("2", key, max_tokens=5)).status == 200

        async def counted() -> bool:
            return 2 * 131_072 < await used_of(handle) < 300_000

        assert await eventually(counted, within_s=10)
    assert caplog.text.count("than its request can have used") == 1


async def test_an_expected_length_alone_refuses_no_request_that_the_limit_holds(tmp_path: Path) -> None:
    engine = SimSettings(itl_ms=0, tokens=1200)
    some = Limit("tenant:acme", parallel_requests=100)
    async with limited(tmp_path, some, engine=engine) as (running, handle, key):
        for n in range(21):  # from here on so long an answer is expected
            assert (await running.post(f"{n}", key)).status == 200
        await handle.target.set_limit(
            Limit("tenant:acme", tokens_per_day=1150, tokens_per_minute=1150, parallel_requests=100)
        )

        async def limits() -> bool:
            return (await running.post("too much", key, max_tokens=1151)).status == 429

        assert await eventually(limits, within_s=10)
        assert (await running.post("as much as there is", key)).status == 200
        refused = await running.post("nothing is left", key)
        assert refused.status == 429
        assert int(refused.headers["retry-after"]) > 0
        assert "more than ever fits" not in refused.error["message"]


async def test_a_stream_that_is_left_counts_all_tokens_of_its_events(tmp_path: Path) -> None:
    """Ten tokens with each event, as engines write with a stream interval."""
    was_read: asyncio.Queue[None] = asyncio.Queue()
    is_left, over = asyncio.Event(), asyncio.Event()

    async def in_tens(request: web.Request) -> web.StreamResponse:
        answer = await begin(request)
        for n in range(50):
            await answer.write(b"data: " + chunk(f"ten tokens {n}") + b"\n\n")
            await was_read.get()  # so that each event comes by itself
        if is_left.is_set():
            await over.wait()
        usage = {"prompt_tokens": 1, "completion_tokens": 500, "total_tokens": 501}
        await answer.write(b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n")
        await answer.write(b"data: [DONE]\n\n")
        return answer

    member = Member(in_tens)
    async with budgeted(tmp_path, member, tokens_per_day=1_000_000) as (running, handle, key):
        async with running.stream("whole", key, max_tokens=900) as stream:
            for _ in range(50):
                await stream.event()
                was_read.put_nowait(None)
            await stream.rest()

        async def first_counted() -> bool:
            return await used_of(handle) == 501

        assert await eventually(first_counted, within_s=10)
        is_left.set()
        async with running.stream("left", key, max_tokens=900) as stream:
            for _ in range(50):
                await stream.event()
                was_read.put_nowait(None)
            stream.leave()

        async def counted() -> bool:
            return 501 + 400 < await used_of(handle) < 501 + 600

        assert await eventually(counted, within_s=10)
        over.set()
