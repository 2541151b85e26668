"""Usage through real gateways: what clients got is what is counted, whichever part is killed."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.accounts import QUICK, accounts_handle, bearer, managed, with_accounts
from support.gateway import MODEL, Running, chat, gateway
from support.graph import eventually
from support.meter import Meter
from support.responses import responses_handle

from deployments.cli.main import main
from serve_app.api.roles import Role

PRICED = {"model": {"cost_per_million_tokens": {"input": 1.0, "output": 10.0}}}


async def usage(
    running: Running, query: str = "", headers: Mapping[str, str] | None = None
) -> dict[str, Any]:
    async with running.http.get(f"/admin/usage?{query}", headers=headers) as response:
        assert response.status == 200, await response.text()
        found: dict[str, Any] = await response.json()
    return found


async def until_counted(running: Running, requests: int) -> dict[str, Any]:
    """The usage, once so many requests are counted."""

    async def so() -> bool:
        return bool((await usage(running, "by="))["total"]["requests"] >= requests)

    assert await eventually(so, within_s=20), await usage(running)
    return await usage(running, "by=tenant,user,key,model")


async def test_what_clients_got_is_what_is_counted(tmp_path: Path) -> None:
    async with accounts_handle(tmp_path) as handle, with_accounts(handle, **PRICED) as running:
        (one, first), (two, second) = managed("a", user="u"), managed("b")
        for key in (first, second):
            await handle.target.make_key(key)
        await until_known(running, one, two)
        answers = [await running.post(f"q{number}", bearer(one)) for number in range(5)]
        answers.append(await running.post("other", bearer(two), stream=True))
        assert {answer.status for answer in answers} == {200}
        counted = await until_counted(running, 6)
        rows = {row["tenant"]: row for row in counted["usage"]}
        assert (rows["a"]["requests"], rows["a"]["user"], rows["a"]["key"]) == (5, "u", first.record.id)
        assert (rows["b"]["requests"], rows["b"]["model"]) == (1, MODEL)
        told = [json.loads(answer.body)["usage"] for answer in answers[:5]]
        assert rows["a"]["tokens_in"] == sum(each["prompt_tokens"] for each in told)
        assert rows["a"]["tokens_out"] == sum(each["completion_tokens"] for each in told)
        assert rows["a"]["cost"] == pytest.approx(
            (rows["a"]["tokens_in"] + 10 * rows["a"]["tokens_out"]) / 1e6, abs=1e-5
        )


async def until_known(running: Running, *keys: str) -> None:
    async def so() -> bool:
        for key in keys:
            async with running.http.get("/v1/models", headers=bearer(key)) as response:
                if response.status != 200:
                    return False
        return True

    assert await eventually(so, within_s=20)


async def test_a_teams_administrator_sees_its_own_usage_only(tmp_path: Path) -> None:
    async with accounts_handle(tmp_path) as handle, with_accounts(handle) as running:
        (own, first), (other, second) = managed("a", role=Role.TENANT_ADMIN), managed("b")
        (watching, third) = managed("ops", role=Role.VIEWER)
        for key in (first, second, third):
            await handle.target.make_key(key)
        await until_known(running, own, other, watching)
        await running.post("x", bearer(own))
        await running.post("y", bearer(other))
        await until_counted(running, 2)
        seen = await usage(running, "by=tenant", bearer(own))
        assert [row["tenant"] for row in seen["usage"]] == ["a"]
        assert seen["total"]["requests"] == 1
        async with running.http.get("/admin/usage?tenant=b", headers=bearer(own)) as response:
            assert response.status == 403
        async with running.http.get("/admin/usage", headers=bearer(other)) as response:
            assert response.status == 403
        assert len((await usage(running, "by=tenant", bearer(watching)))["usage"]) == 2


async def test_usage_as_csv(tmp_path: Path) -> None:
    async with accounts_handle(tmp_path) as handle, with_accounts(handle) as running:
        key, kept = managed("a", user="=cmd()")
        await handle.target.make_key(kept)
        await until_known(running, key)
        await running.post("x", bearer(key))
        await until_counted(running, 1)
        async with running.http.get("/admin/usage?format=csv&by=user") as response:
            assert response.headers["content-type"].startswith("text/csv")
            assert "attachment" in response.headers["content-disposition"]
            head, row = csv.reader(io.StringIO(await response.text(), newline=""))
        assert (row[0], row[head.index("requests")]) == ("'=cmd()", "1")


async def test_a_wrong_query_names_its_parameter(tmp_path: Path) -> None:
    async with (
        accounts_handle(tmp_path) as handle,
        with_accounts(handle) as running,
        running.http.get("/admin/usage?by=prompt") as response,
    ):
        assert response.status == 400
        assert (await response.json())["error"]["param"] == "by"


async def test_without_accounts_there_is_no_usage() -> None:
    async with gateway() as running:
        for path in ("/admin/usage", "/admin/audit"):
            async with running.http.get(path) as response:
                assert response.status == 404
                assert (await response.json())["error"]["code"] == "no_accounts"


async def test_usage_waits_while_its_owner_is_away_and_is_counted_once(tmp_path: Path) -> None:
    async with accounts_handle(tmp_path) as handle, with_accounts(handle) as running:
        key, kept = managed("a")
        await handle.target.make_key(kept)
        await until_known(running, key)
        with handle.failing("exchange"):
            for number in range(10):
                assert (await running.post(f"q{number}", bearer(key))).status == 200
        counted = await until_counted(running, 10)
        assert counted["total"]["requests"] == 10


async def test_a_report_whose_answer_was_lost_is_counted_once(tmp_path: Path) -> None:
    async with accounts_handle(tmp_path) as handle:
        real, lost = handle.target.exchange, 0

        async def loses_answers(report: Any) -> Any:
            nonlocal lost
            changes = await real(report)
            if report.usage and lost < 3:
                lost += 1
                raise RuntimeError("the answer was lost")
            return changes

        handle.target.exchange = loses_answers
        async with with_accounts(handle) as running:
            key, kept = managed("a")
            await handle.target.make_key(kept)
            await until_known(running, key)
            for number in range(4):
                await running.post(f"q{number}", bearer(key))
            counted = await until_counted(running, 4)
            assert lost > 0
            assert counted["total"]["requests"] == 4


async def test_a_gateway_that_ends_reports_its_last_requests(tmp_path: Path) -> None:
    async with accounts_handle(tmp_path) as handle:
        key, kept = managed("a")
        await handle.target.make_key(kept)
        async with with_accounts(handle) as running:
            await until_known(running, key)
            answers = await asyncio.gather(*(running.post(f"q{n}", bearer(key)) for n in range(8)))
            assert {answer.status for answer in answers} == {200}
        async with with_accounts(handle) as running:
            assert (await usage(running, "by="))["total"]["requests"] == 8


async def test_refused_and_failed_requests_are_counted_as_such(tmp_path: Path) -> None:
    async with accounts_handle(tmp_path) as handle, with_accounts(handle) as running:
        key, kept = managed("a", models=("other",))
        await handle.target.make_key(kept)
        await until_known(running, key)
        assert (await running.post("x", bearer(key))).status == 403
        assert (await running.send({"model": 3}, headers=bearer(key))).status == 400
        (row,) = (await until_counted(running, 2))["usage"]
        assert (row["requests"], row["refused"], row["failed"], row["tokens_in"]) == (2, 1, 0, 0)


async def background(running: Running, key: str, **fields: Any) -> Any:
    body = {"model": MODEL, "input": "hello", "background": True, **fields}
    return await running.send(body, "/v1/responses", bearer(key))


async def test_a_background_response_is_one_request(tmp_path: Path) -> None:
    async with (
        accounts_handle(tmp_path / "accounts") as handle,
        responses_handle(tmp_path / "responses") as responses,
        with_accounts(handle, handles={"responses": responses}) as running,
    ):
        key, kept = managed("a")
        await handle.target.make_key(kept)
        await until_known(running, key)
        answers = [await background(running, key), await background(running, key, stream=True)]
        assert {answer.status for answer in answers} == {200}
        await until_counted(running, 2)
        assert (await running.post("the last", bearer(key))).status == 200
        (row,) = (await until_counted(running, 3))["usage"]
        assert (row["requests"], row["failed"], row["tokens_out"]) == (3, 0, 3 * (QUICK.tokens + 1))


async def test_a_background_response_that_was_not_begun_is_counted(tmp_path: Path) -> None:
    async with (
        accounts_handle(tmp_path / "accounts") as handle,
        responses_handle(tmp_path / "responses") as responses,
        with_accounts(
            handle,
            handles={"responses": responses},
            responses={"max_background": 0},
        ) as running,
    ):
        key, kept = managed("a")
        await handle.target.make_key(kept)
        await until_known(running, key)
        assert (await background(running, key)).status == 429
        (row,) = (await until_counted(running, 1))["usage"]
        assert (row["requests"], row["refused"], row["tokens_in"]) == (1, 1, 0)


async def test_every_endpoint_that_reaches_a_member_counts_its_tokens(tmp_path: Path) -> None:
    async with accounts_handle(tmp_path) as handle, with_accounts(handle) as running:
        key, kept = managed("a")
        await handle.target.make_key(kept)
        await until_known(running, key)
        asked: list[tuple[str, dict[str, Any]]] = [
            ("/v1/chat/completions", chat("hello")),
            ("/v1/completions", {"model": MODEL, "prompt": "hello"}),
            ("/v1/messages", chat("hello", max_tokens=5)),
            ("/v1/responses", {"model": MODEL, "input": "hello", "store": False}),
        ]
        for number, (path, body) in enumerate(asked, 1):
            answer = await running.send(body, path, bearer(key))
            assert answer.status == 200, (path, answer.body)
            counted = (await until_counted(running, number))["total"]
            assert counted["tokens_out"] >= number, path


async def test_tenants_have_metrics_up_to_a_bound(tmp_path: Path) -> None:
    meter = Meter()
    bound = {"accounts": {"usage_metrics_tenants": 2}}
    async with (
        accounts_handle(tmp_path) as handle,
        with_accounts(handle, QUICK, meter=meter, **bound) as running,
    ):
        made = [managed(f"t{number}") for number in range(4)]
        for _, kept in made:
            await handle.target.make_key(kept)
        await until_known(running, *(key for key, _ in made))
        for number, (key, _) in enumerate(made, 1):
            await running.post("x", bearer(key))
            await until_counted(running, number)
        labels = meter.labels["promptly_tenant_requests"]
        assert labels == {("t0", "answered"), ("t1", "answered"), ("other", "answered")}


async def test_the_command_prints_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with accounts_handle(tmp_path) as handle, with_accounts(handle) as running:
        admin, first = managed("ops", role=Role.ADMIN)
        await handle.target.make_key(first)
        await until_known(running, admin)
        await running.post("x", bearer(admin))
        await until_counted(running, 1)
        kept = tmp_path / "secret"
        kept.write_text(running.http.headers["authorization"].removeprefix("Bearer ") + "\n")
        for arguments, status, said in (
            (["--by", "tenant"], 0, "ops"),
            (["--csv", "--tenant", "ops"], 0, "day,tenant,model,requests"),
            (["--by", "prompt"], 1, "`by` names 'prompt'"),
        ):
            command = ["usage", "--endpoint", running.url, "--key-file", str(kept), *arguments]
            assert await asyncio.to_thread(main, command) == status
            shown = capsys.readouterr()
            assert said in shown.out + shown.err
        gone = ["usage", "--url", "http://127.0.0.1:9", "--key-file", str(kept)]
        assert await asyncio.to_thread(main, gone) == 1
        assert "no answer" in capsys.readouterr().err
